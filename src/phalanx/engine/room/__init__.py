"""Where a gang fits: free room, placement, arithmetic on seats, ceilings."""
