package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

const (
	// maxSecretBytes bounds a secret file: keys and passwords are far shorter, and
	// a path typed wrongly may lead anywhere.
	maxSecretBytes = 64 << 10
	// minSecretBytes keeps the keys that are derived from a secret out of reach of
	// a search: 128 bits if it was drawn at random.
	minSecretBytes = 16
)

// fetchSecrets fills in the Secret fields from the environment or from files.
func (c *Config) fetchSecrets(f *file, opts LoadOptions) {
	for name, p := range c.Probes {
		p.APIKey = fetchSecret(f, opts, joinPath("probes", name), "api_key", p.APIKeyEnv, p.APIKeyFile)
		c.Probes[name] = p
	}
	c.Cache.Secret = fetchSecret(f, opts, "cache", "secret", c.Cache.SecretEnv, c.Cache.SecretFile)
	checkSecretLength(f, "cache", c.Cache.SecretEnv, c.Cache.Secret)
	if r := c.Record; r != nil {
		r.Secret = fetchSecret(f, opts, "record", "secret", r.SecretEnv, r.SecretFile)
		checkSecretLength(f, "record", r.SecretEnv, r.Secret)
	}
	if r := c.Cache.Redis; r != nil {
		r.Password = fetchSecret(f, opts, "cache.redis", "password", r.PasswordEnv, r.PasswordFile)
		r.SentinelPassword = fetchSecret(f, opts, "cache.redis", "sentinel_password", r.SentinelPasswordEnv, r.SentinelPasswordFile)
	}
}

// checkSecretLength reports a secret of section that keys cannot be derived from.
func checkSecretLength(f *file, section, envName string, secret Secret) {
	if n := len(secret.Reveal()); n == 0 || n >= minSecretBytes {
		return
	}
	key := section + ".secret_env"
	if envName == "" {
		key = section + ".secret_file"
	}
	f.checkf(key, nil, "the secret is too short: at least %d bytes, such as those of openssl rand -base64 32", minSecretBytes)
}

// fetchSecret reads the secret that section.key_env or section.key_file names,
// if either does.
func fetchSecret(f *file, opts LoadOptions, section, key, envName, fileName string) Secret {
	envPath, filePath := section+"."+key+"_env", section+"."+key+"_file"
	switch {
	case envName != "" && fileName != "":
		f.checkf(filePath, []string{envPath}, "is given beside %s_env: use one of them", key)
		return Secret{}
	case envName != "":
		return secretFromEnv(f, opts, envPath, envName)
	case fileName != "":
		return secretFromFile(f, filePath, fileName)
	default:
		return Secret{}
	}
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// shownVariable matches the names that are repeated in an error: those that
	// look like a variable's and not like a key that was written here by mistake.
	shownVariable = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)
)

func secretFromEnv(f *file, opts LoadOptions, at, name string) Secret {
	if !variableName.MatchString(name) {
		f.checkf(at, nil, "must be the name of an environment variable, not the secret itself")
		return Secret{}
	}
	shown := "the environment variable it names"
	if shownVariable.MatchString(name) {
		shown = "the environment variable " + name
	}
	value, found := opts.lookupEnv(name)
	switch {
	case !found:
		f.checkf(at, nil, "%s is not set: set it or remove the key", shown)
	case strings.TrimSpace(value) == "":
		f.checkf(at, nil, "%s is set but empty: give it a value or remove the key", shown)
	}
	return NewSecret(value)
}

func secretFromFile(f *file, at, name string) Secret {
	data, err := readSecretFile(name)
	if err != nil {
		f.checkf(at, nil, "cannot be read: %v", err)
		return Secret{}
	}
	value := strings.TrimRight(string(data), " \t\r\n")
	if strings.TrimSpace(value) == "" {
		f.checkf(at, nil, "the file is empty: write the secret into it or remove the key")
	}
	return NewSecret(value)
}

// readSecretFile reads a whole small file. Its errors name the cause alone: the
// configuration has the path.
func readSecretFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, withoutPath(err)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSecretBytes+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, withoutPath(err)
	}
	if len(data) > maxSecretBytes {
		return nil, errors.New("it is larger than 64KiB")
	}
	return data, nil
}

func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
