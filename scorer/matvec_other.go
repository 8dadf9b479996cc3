//go:build !amd64

package scorer

const canVectorise = false

func (p *product) multiplyVectorised(int, int) { panic("no vector instructions") }
