"""The commands of `tally local` that use a running stack. Each module has the commands of one kind."""
