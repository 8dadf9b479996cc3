package test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestSecurityNamesRealTests: what SECURITY.md claims to be shown by a test has one.
func TestSecurityNamesRealTests(t *testing.T) {
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) == 0 {
		t.Fatal("it names none")
	}
	for _, n := range names {
		if err := exec.CommandContext(t.Context(), "grep", "-rq", "--include=*_test.go", "^func "+n[1]+"(", "..").Run(); err != nil {
			t.Errorf("there is no %s", n[1])
		}
	}
}
