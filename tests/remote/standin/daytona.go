package main

func daytonaAPIMain([]string) error    { return nil }
func daytonaDaemonMain([]string) error { return nil }
