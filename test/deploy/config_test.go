package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/config"
)

// repoRoot is the repository, seen from this package.
const repoRoot = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repoRoot, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// parse loads a configuration whose secrets are all set.
func parse(t *testing.T, path, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(path, []byte(text), config.LoadOptions{LookupEnv: func(string) (string, bool) { return "a secret that is long enough", true }})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestComposeConfiguration(t *testing.T) {
	const path = "deploy/compose/pointsman.yaml"
	cfg := parse(t, path, read(t, path))
	compose := read(t, "deploy/compose.yaml")
	// Both sides of the shared folder, and the model, are said in both files.
	for name, p := range cfg.Probes {
		for _, want := range []string{`"shared_storage_path":"` + p.Endpoints[0].HiddenStatesDir + `"`, "- " + p.ServedModel} {
			if !strings.Contains(compose, want) {
				t.Errorf("probe %s: compose.yaml does not say %s", name, want)
			}
		}
	}
}

const configurationHeader = `# Configuration reference

Every key of the one YAML file. This page is generated from the code (server/config) and a test keeps it equal:
` + "`UPDATE=1 go test ./test/deploy -run TestConfigurationReference`" + ` writes it anew. ` + "`*`" + ` is any name, ` + "`[]`" + ` any element.

Durations are written 250ms, 2s, 5m; sizes 64KiB, 1MiB, 8GiB. A key that ends in ` + "`_env`" + ` names an environment variable that must be set and not
empty; one that ends in ` + "`_file`" + ` names a file. Relative paths are relative to the configuration file.

`

// TestConfigurationReference keeps deploy/configuration.md what the code says.
func TestConfigurationReference(t *testing.T) {
	const path = "deploy/configuration.md"
	want := configurationHeader + config.Markdown(config.Reference())
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(filepath.Join(repoRoot, path), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != want {
		t.Errorf("%s is not what the code says: run UPDATE=1 go test ./test/deploy -run TestConfigurationReference and commit it", path)
	}
}

// TestAnswerIsDocumented: deploy/README.md names every field of the answer and every
// value of its enums.
func TestAnswerIsDocumented(t *testing.T) {
	text := withoutBlocks(read(t, "deploy/README.md"))
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		named[m[1]] = true
	}
	for _, message := range []protoreflect.ProtoMessage{(*pointsmanv1.DecideResponse)(nil), (*pointsmanv1.TargetScore)(nil), (*pointsmanv1.Timing)(nil)} {
		fields := message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if name := string(fields.Get(i).Name()); !named[name] {
				t.Errorf("deploy/README.md does not name %s", fields.Get(i).FullName())
			}
		}
	}
	for _, enum := range []protoreflect.Enum{
		pointsmanv1.Tier(0), pointsmanv1.Basis(0), pointsmanv1.FallbackReason(0), pointsmanv1.Origin(0), pointsmanv1.CachePolicy(0), pointsmanv1.FallbackPolicy(0), pointsmanv1.ErrorReason(0),
	} {
		values := enum.Descriptor().Values()
		unspecified := string(values.ByNumber(0).Name())
		prefix := strings.TrimSuffix(unspecified, "UNSPECIFIED")
		for i := range values.Len() {
			if name := strings.TrimPrefix(string(values.Get(i).Name()), prefix); name != "UNSPECIFIED" && !named[name] {
				t.Errorf("deploy/README.md does not name %s", values.Get(i).Name())
			}
		}
	}
}

// TestReadmeConfigurations: every YAML block of deploy/README.md is a configuration
// that the service takes, and the migrated one keeps what it says it keeps.
func TestReadmeConfigurations(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, "deploy/README.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("found %d configurations", len(blocks))
	}
	var configs []*config.Config
	for _, b := range blocks {
		configs = append(configs, parse(t, "/etc/pointsman/pointsman.yaml", b[1]))
	}
	migrated := configs[1].Routes["smart"]
	if last := migrated.Targets[len(migrated.Targets)-1]; last.Tier != config.TierWeak || migrated.Fallback != "opus" || *migrated.Policy.QualityWeight != 0.75 || migrated.TaskFrom != config.TaskFromFirstUser {
		t.Errorf("the migrated route is %+v", migrated)
	}
}
