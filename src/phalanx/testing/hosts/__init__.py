"""The daemon of one machine in virtual time: the real core on a made-up machine, disk and clock.

`host_world`        all of it put together; what a test starts from
`virtual_loop`      an event loop whose time is a number
`virtual_store`     the real SQL with a disk whose time is virtual
`virtual_launcher`  the daemon's side of made-up shims
`made_up_machine`   the truth about processes and run directories
`scripts`           what the programs on it do
`people`            those who use it
`troubles`          what goes wrong with it
`machine_rules`     what must be true of it at every instant
`trials`            random days with random faults, by seed
`busy_days`         scenarios in which nearly everything collides
`conformance`       one scenario through the simulator and through the daemon's core
"""
