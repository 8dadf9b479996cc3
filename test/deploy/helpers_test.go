package deploy

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
)

// manifest reads the encoder and the heads of a checkpoint.
func manifest(t *testing.T, path string) (encoder string, heads []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Encoder string   `json:"encoder"`
		Heads   []string `json:"output_names"`
	}
	if err := json.Unmarshal(data, &m); err != nil || len(m.Heads) < 2 {
		t.Fatalf("%s: %v, heads %v", path, err, m.Heads)
	}
	return m.Encoder, m.Heads
}

// plainChat is a server of the chat API without the hidden-states connector.
type plainChat struct{}

func (plainChat) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"id":"chatcmpl-1","choices":[],"kv_transfer_params":null}`))
}
