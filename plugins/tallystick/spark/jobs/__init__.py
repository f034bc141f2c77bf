"""Job files of tallystick's own: each is started by spark-submit. They are apart, because their folder is on sys.path."""
