package vllmsim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

func TestConfigReportsEveryMistakeAtOnce(t *testing.T) {
	_, err := vllmsim.New(vllmsim.Config{
		MaxModelLen: 1, DType: "F64", Regime: 4, Latency: -time.Second, WriteDelay: -time.Second, MaxConcurrent: -1, APIKey: " key",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"dir", "model is empty", "layers", "hidden size", "max model len", "dtype", "regime", "latency", "write delay", "max concurrent", "api key",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), " key\"") {
		t.Error("the key is in the error")
	}
}

func TestConfigNeedsLittle(t *testing.T) {
	if err := config(t).Validate(); err != nil {
		t.Error(err)
	}
}
