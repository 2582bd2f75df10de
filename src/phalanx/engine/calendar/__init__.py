"""What lies ahead: expected ends, reservations and windows, behind one port."""
