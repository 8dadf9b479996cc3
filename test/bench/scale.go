package main

import "context"

type scaleCmd struct{}

func (c *scaleCmd) Run(ctx context.Context) error { return nil }
