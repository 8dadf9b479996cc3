package cache

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

func fieldsA() KeyFields {
	return KeyFields{
		Namespace: "tenant", Encoder: "Qwen/Qwen3-8B", Revision: "fp8", ChatTemplate: []byte(`{"enable_thinking":false}`),
		CheckpointDigest: "sha256:00", Task: "What is 2+2?",
	}
}

// The encoding is shared by every process of every version with the same SchemaVersion: a change here needs a new one. The values
// were computed from the description of the encoding with Python's hashlib and hmac.
func TestKeyIsPinned(t *testing.T) {
	plain, keyed := mustKeyer(t, nil), mustKeyer(t, secret)
	for _, c := range []struct {
		name, want string
		got        Key
	}{
		{"plain", "8c057342d6d943b3dd1ee2983fe6ea8f17cddc003b0d7d774b3d9b0e889fed78", plain.Key(fieldsA())},
		{"secret", "07ea300e6d10872bd3035992f639267eef8ec51686689b3f8fabf4d9950a4201", keyed.Key(fieldsA())},
	} {
		if got := hex.EncodeToString(c.got[:]); got != c.want {
			t.Errorf("%s: key is %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEveryFieldIsInTheKey(t *testing.T) {
	change := map[string]func(*KeyFields){
		"namespace":         func(f *KeyFields) { f.Namespace += "x" },
		"encoder":           func(f *KeyFields) { f.Encoder += "x" },
		"revision":          func(f *KeyFields) { f.Revision += "x" },
		"chat template":     func(f *KeyFields) { f.ChatTemplate = append(f.ChatTemplate, 'x') },
		"checkpoint digest": func(f *KeyFields) { f.CheckpointDigest += "x" },
		"task":              func(f *KeyFields) { f.Task += "x" },
		"border moved":      func(f *KeyFields) { f.Namespace, f.Encoder = f.Namespace+f.Encoder[:1], f.Encoder[1:] },
		"fields swapped":    func(f *KeyFields) { f.Namespace, f.Revision = f.Revision, f.Namespace },
		"long task":         func(f *KeyFields) { f.Task = strings.Repeat("x", 100_000) },
		"longer task":       func(f *KeyFields) { f.Task = strings.Repeat("x", 100_001) },
	}
	for kind, keyer := range map[string]*Keyer{"plain": mustKeyer(t, nil), "secret": mustKeyer(t, secret)} {
		seen := map[Key]string{keyer.Key(fieldsA()): "unchanged"}
		for name, change := range change {
			fields := fieldsA()
			change(&fields)
			key := keyer.Key(fields)
			if other, ok := seen[key]; ok {
				t.Errorf("%s: %q has the key of %q", kind, name, other)
			}
			seen[key] = name
		}
	}
}

func TestSecretsSeparateKeys(t *testing.T) {
	other := bytes.Repeat([]byte{7}, 32)
	keys := map[Key]bool{}
	for _, s := range [][]byte{nil, secret, other} {
		keys[mustKeyer(t, s).Key(fieldsA())] = true
	}
	if len(keys) != 3 {
		t.Errorf("no secret and two secrets give %d different keys, want 3", len(keys))
	}
}

func TestShortSecretIsRefused(t *testing.T) {
	if _, err := NewKeyer([]byte("fifteen bytes..")); !errors.Is(err, ErrWeakSecret) {
		t.Errorf("got error %v, want ErrWeakSecret", err)
	}
}

func TestKeyAllocatesNothing(t *testing.T) {
	fields := fieldsA()
	fields.Task = strings.Repeat("x", 1<<20)
	for name, keyer := range map[string]*Keyer{"plain": mustKeyer(t, nil), "secret": mustKeyer(t, secret)} {
		if n := testing.AllocsPerRun(10, func() { keyer.Key(fields) }); n >= 1 && !raceEnabled {
			t.Errorf("%s: %v allocations a key, want none", name, n)
		}
	}
}

func FuzzDifferentFieldsHaveDifferentKeys(f *testing.F) {
	f.Add("a", "b", "", []byte("c"), "d", "e", "ab", "", "", []byte(nil), "cd", "e")
	f.Add("", "", "", []byte(nil), "", "x", "", "", "", []byte("x"), "", "")
	keyer := mustKeyer(f, nil)
	f.Fuzz(func(t *testing.T, ns, enc, rev string, tmpl []byte, digest, task, ns2, enc2, rev2 string, tmpl2 []byte, digest2, task2 string) {
		a := KeyFields{ns, enc, rev, tmpl, digest, task}
		b := KeyFields{ns2, enc2, rev2, tmpl2, digest2, task2}
		same := ns == ns2 && enc == enc2 && rev == rev2 && bytes.Equal(tmpl, tmpl2) && digest == digest2 && task == task2
		if (keyer.Key(a) == keyer.Key(b)) != same {
			t.Errorf("equal keys: %v, equal fields: %v\n%+v\n%+v", !same, same, a, b)
		}
	})
}

func mustKeyer(t testing.TB, secret []byte) *Keyer {
	t.Helper()
	k, err := NewKeyer(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func BenchmarkKey(b *testing.B) {
	for name, secret := range map[string][]byte{"plain": nil, "secret": secret} {
		for size, n := range map[string]int{"200B": 200, "64KiB": 64 << 10} {
			b.Run(name+"/"+size, func(b *testing.B) {
				keyer, fields := mustKeyer(b, secret), fieldsA()
				fields.Task = strings.Repeat("x", n)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					keyer.Key(fields)
				}
			})
		}
	}
}
