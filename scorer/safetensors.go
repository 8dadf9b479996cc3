package scorer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/nlpodyssey/safetensors"
)

const (
	bytesPerFloat = 4
	// prefixBytes is the length of the little-endian header length that a
	// safetensors file begins with.
	prefixBytes = 8
	// maxHeaderBase and maxHeaderPerTensor bound the header: an entry of ours
	// takes about 100 bytes, the base leaves room for __metadata__.
	maxHeaderBase      = 1 << 20
	maxHeaderPerTensor = 256
	// decodeChunk is how many bytes are read at once, whatever a tensor's size.
	decodeChunk = 64 << 10
)

// readTensors fills the slots from a safetensors file of the given size, reading
// r from its start to its end. Exactly the slots' names must be there, F32, with
// the slots' shapes. Nothing is allocated for values before all of that, and the
// file's size, has been found to agree.
func readTensors(r io.Reader, size int64, file string, list []slot) error {
	header, dataSize, err := readHeader(r, size, file, len(list))
	if err != nil {
		return err
	}
	infos := header.Tensors()
	for _, s := range list {
		if err := checkInfo(infos[s.name], s, file); err != nil {
			return err
		}
	}
	if len(infos) > len(list) {
		for _, s := range list {
			delete(infos, s.name)
		}
		extra := slices.Min(slices.Collect(maps.Keys(infos)))
		return &CheckpointError{File: file, Part: quote(extra), Problem: "is not a tensor that " + manifestFile + " calls for"}
	}

	// In the order of the file, so that it can be read once and hashed on the way.
	ordered := slices.Clone(list)
	slices.SortFunc(ordered, func(a, b slot) int {
		return compareOffsets(infos[a.name].DataOffsets, infos[b.name].DataOffsets)
	})
	end := uint64(0)
	for _, s := range ordered {
		offsets := infos[s.name].DataOffsets
		length := uint64(s.elements()) * bytesPerFloat
		if offsets[0] != end || offsets[1] != end+length {
			return &CheckpointError{
				File: file, Part: s.name,
				Problem: fmt.Sprintf("has data_offsets %d, want [%d %d]", offsets, end, end+length),
			}
		}
		end += length
	}
	if end != dataSize {
		return &CheckpointError{File: file, Problem: fmt.Sprintf("holds %d bytes after its header, want %d", dataSize, end)}
	}

	buf := make([]byte, decodeChunk)
	for _, s := range ordered {
		*s.values = make([]float32, s.elements())
		if err := readFloats(r, *s.values, buf); err != nil {
			return &CheckpointError{File: file, Part: s.name, Problem: unreadable, Err: err}
		}
		if err := s.check(file); err != nil {
			return err
		}
	}
	return nil
}

// readHeader reads the header of a safetensors file and returns it with the
// number of bytes that follow it. The library's own reader wants the whole file
// in memory, twice the checkpoint's size while it is decoded, so only its
// decoding of the header is used; the offsets, which it does not check here, are
// checked by readTensors.
func readHeader(r io.Reader, size int64, file string, tensors int) (header safetensors.Metadata, rest uint64, err error) {
	if size < prefixBytes {
		return header, 0, &CheckpointError{File: file, Problem: fmt.Sprintf("is not a safetensors file: it has %d bytes", size)}
	}
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return header, 0, &CheckpointError{File: file, Problem: "header cannot be read", Err: err}
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if limit := uint64(maxHeaderBase + maxHeaderPerTensor*tensors); length > limit {
		return header, 0, &CheckpointError{File: file, Problem: fmt.Sprintf("is not a safetensors file: a header of %d bytes, want at most %d", length, limit)}
	}
	if room := uint64(size - prefixBytes); length > room {
		return header, 0, &CheckpointError{File: file, Problem: fmt.Sprintf("is not a safetensors file: a header of %d bytes in a file of %d", length, size)}
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(r, data); err != nil {
		return header, 0, &CheckpointError{File: file, Problem: "header cannot be read", Err: err}
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return header, 0, &CheckpointError{File: file, Problem: "is not a safetensors file: its header cannot be decoded", Err: err}
	}
	return header, uint64(size) - prefixBytes - length, nil
}

func checkInfo(info *safetensors.TensorInfo, s slot, file string) error {
	if info == nil {
		return &CheckpointError{File: file, Part: s.name, Problem: "is missing"}
	}
	if info.DType != safetensors.F32 {
		return &CheckpointError{File: file, Part: s.name, Problem: fmt.Sprintf("has dtype %s, want F32", info.DType)}
	}
	same := slices.EqualFunc(info.Shape, s.shape, func(got uint64, want int) bool { return got == uint64(want) })
	if !same {
		return &CheckpointError{File: file, Part: s.name, Problem: "has shape " + clip(fmt.Sprint(info.Shape)) + ", want " + fmt.Sprint(s.shape)}
	}
	return nil
}

func compareOffsets(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) }

// readFloats fills dst with little-endian float32 values, through buf.
func readFloats(r io.Reader, dst []float32, buf []byte) error {
	for len(dst) > 0 {
		chunk := buf[:min(len(buf), len(dst)*bytesPerFloat)]
		if _, err := io.ReadFull(r, chunk); err != nil {
			return fmt.Errorf("read values: %w", err)
		}
		n := len(chunk) / bytesPerFloat
		for i := range dst[:n] {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(chunk[i*bytesPerFloat:]))
		}
		dst = dst[n:]
	}
	return nil
}

// writeTensors writes the slots as a safetensors file, in the order of their
// names.
func writeTensors(w io.Writer, list []slot) error {
	views := make(map[string]floatView, len(list))
	for _, s := range list {
		views[s.name] = floatView{s}
	}
	if err := safetensors.SerializeToWriter(views, nil, w); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	return nil
}

// floatView lets the library write a slot. Its bytes are made when they are
// asked for, so that one tensor at a time stands in memory twice.
type floatView struct{ slot slot }

var _ safetensors.View = floatView{}

func (v floatView) DType() safetensors.DType { return safetensors.F32 }

func (v floatView) Shape() []uint64 {
	shape := make([]uint64, len(v.slot.shape))
	for i, d := range v.slot.shape {
		shape[i] = uint64(d)
	}
	return shape
}

func (v floatView) DataLen() uint64 { return uint64(v.slot.elements()) * bytesPerFloat }

func (v floatView) Data() []byte {
	var b bytes.Buffer
	b.Grow(len(*v.slot.values) * bytesPerFloat)
	for _, f := range *v.slot.values {
		b.Write(binary.LittleEndian.AppendUint32(b.AvailableBuffer(), math.Float32bits(f)))
	}
	return b.Bytes()
}
