//go:build !amd64

package probe

func vectorKernel(string, kernels) (kernel, bool) { return nil, false }
