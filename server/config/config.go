// Package config reads Pointsman's one YAML file into plain, checked data.
//
// Load and Parse return a complete Config: defaults filled in, paths resolved,
// secrets fetched, every reference checked. A mistake in the file becomes a
// Problem with file, line, column and path; all of them are reported at once.
// The structs below are the whole language: keys, limits and documentation are
// read from their tags by the decoder, the validator and Reference alike, so
// that the three cannot drift apart.
//
// The package knows nothing of caches, probes, checkpoints or gRPC and opens
// nothing but the file itself and the secret files it names. Turning a Config
// into running parts is the server's work.
//
// Tags on the fields:
//
//	yaml   the key, as in yaml.v3
//	need   "true": must not be empty, and must be given if it has no default; or the kind of probe that needs it
//	kind   the kind of probe that has a use for it; absent: every kind
//	range  "lo..hi" in the field's own unit, both ends included, either may be missing
//	enum   the accepted words, separated by |
//	path   "true": a file or folder, taken relative to the configuration file
//	doc    what the key means, for Reference
package config

// Config is the whole configuration.
type Config struct {
	GRPC         GRPC             `yaml:"grpc" doc:"The gRPC service."`
	Admin        Admin            `yaml:"admin" doc:"The HTTP port for operators."`
	DefaultRoute string           `yaml:"default_route" doc:"The route of a request that names none. With a single route, that one; else none."`
	Routes       map[string]Route `yaml:"routes" need:"true" doc:"The routes by name: what is chosen between, and how."`
	Probes       map[string]Probe `yaml:"probes" need:"true" doc:"The probes by name: where hidden states come from."`
	Cache        Cache            `yaml:"cache" doc:"What is remembered, and where."`
	Log          Log              `yaml:"log" doc:"The log on standard error."`
	Record       *Record          `yaml:"record,omitempty" doc:"A file of all decisions, to evaluate other trade-offs by. Absent: none."`
	Readiness    Readiness        `yaml:"readiness" doc:"When calls should be sent here."`
	Reload       Reload           `yaml:"reload" doc:"How changed files are taken over."`
	Shutdown     Shutdown         `yaml:"shutdown" doc:"How the service stops."`
}

// GRPC is the listener that callers of Decide use.
type GRPC struct {
	Listen          string      `yaml:"listen" need:"true" doc:"The address to listen on, host:port. An empty host means every interface, port 0 any free port."`
	MaxTaskBytes    ByteSize    `yaml:"max_task_bytes" range:"1B..1GiB" doc:"The longest task that is scored; a longer one is answered by the fallback target with TASK_TOO_LARGE."`
	MaxMessageBytes ByteSize    `yaml:"max_message_bytes" range:"1KiB..2047MiB" doc:"The largest request message; at least 64KiB more than max_task_bytes."`
	DeadlineMargin  Duration    `yaml:"deadline_margin" range:"0s..1s" doc:"How long before the caller's deadline the answer leaves, at most; a quarter of what remains on arrival if that is less."`
	Reflection      bool        `yaml:"reflection" doc:"Whether gRPC server reflection is offered, so that grpcurl needs no proto file."`
	Health          bool        `yaml:"health" doc:"Whether the gRPC health service is offered."`
	TLS             *TLS        `yaml:"tls,omitempty" doc:"TLS for the gRPC port. Absent: plaintext."`
	Auth            *Auth       `yaml:"auth,omitempty" doc:"Who may call. Absent: anyone who can connect."`
	Connections     Connections `yaml:"connections" doc:"What connections and calls may take."`
	MaxInFlight     int         `yaml:"max_in_flight" range:"1..1000000" doc:"How many decisions may be under way at once; more are answered by the fallback target with OVERLOADED."`
	Overrides       Overrides   `yaml:"overrides" doc:"What callers may ask for that the configuration did not decide. With auth, a token needs the permission too."`
}

// Connections are the limits of the gRPC transport.
type Connections struct {
	Max        int      `yaml:"max" range:"1..1000000" doc:"How many connections are held; a further one is closed at once."`
	MaxStreams int      `yaml:"max_streams" range:"1..65536" doc:"How many calls one connection may have under way."`
	MaxIdle    Duration `yaml:"max_idle" range:"1s..24h" doc:"After how long without a call a connection is closed."`
	MaxAge     Duration `yaml:"max_age" range:"1s..240h" doc:"After how long a connection is closed, calls under way excepted, so that callers spread over new replicas and revoked certificates end."`
	MinPing    Duration `yaml:"min_ping" range:"1s..1h" doc:"The shortest interval of a caller's keepalive pings; one that pings more often is disconnected."`
	Handshake  Duration `yaml:"handshake" range:"100ms..5m" doc:"How long a connection may take to be made, TLS included."`
}

// TLS is a server's certificate and, for mutual TLS, whom it trusts.
type TLS struct {
	CertFile     string `yaml:"cert_file" need:"true" path:"true" doc:"PEM file with the certificate chain."`
	KeyFile      string `yaml:"key_file" need:"true" path:"true" doc:"PEM file with the private key."`
	ClientCAFile string `yaml:"client_ca_file,omitempty" path:"true" doc:"PEM file with the authorities that sign callers' certificates. Set: callers must present one."`
}

// Auth is how callers prove who they are.
type Auth struct {
	TokensFile string `yaml:"tokens_file" need:"true" path:"true" doc:"File with the accepted bearer tokens, one a line: NAME TOKEN [PERMISSION,...], the permissions being trade_off, refresh, bypass or all."`
	OpenHealth bool   `yaml:"open_health" doc:"Whether health checks (Check, not Watch) are answered without a token."`
}

// Overrides are the parts of a request that a configuration may forbid. A forbidden
// one is refused with OVERRIDE_FORBIDDEN.
type Overrides struct {
	TradeOff bool `yaml:"trade_off" doc:"Whether a request may bring its own quality_weight or tolerance."`
	Refresh  bool `yaml:"refresh" doc:"Whether a request may have cached scores computed anew: cache_policy REFRESH, or a max_age. Each costs a probe."`
	Bypass   bool `yaml:"bypass" doc:"Whether a request may pass the caches by: cache_policy BYPASS. Each costs a probe, and none is shared."`
}

// Admin is the HTTP listener for operators.
type Admin struct {
	Listen string `yaml:"listen" need:"true" doc:"The address of /metrics, /livez, /readyz, /configz, /loglevel and /debug/pprof, host:port."`
}

// Route is one way of deciding.
type Route struct {
	Probe         string       `yaml:"probe" need:"true" doc:"The name of the probe that reads the hidden states."`
	Checkpoint    string       `yaml:"checkpoint" need:"true" path:"true" doc:"Folder with router.json and router.safetensors."`
	Targets       []Target     `yaml:"targets" need:"true" doc:"What is chosen between, two or more. The later wins ties, so the weak one stands last."`
	Policy        Policy       `yaml:"policy" doc:"How quality is traded against cost: one of quality_weight and tolerance. Absent: tolerance 0.2."`
	Backup        *Backup      `yaml:"backup,omitempty" doc:"What is asked when the probe or its checkpoint fails, before the fallback target is answered. Absent: nothing."`
	Mode          Mode         `yaml:"mode" enum:"serve|shadow" doc:"serve answers the choice; shadow scores, but answers the fallback target."`
	TaskFrom      TaskFrom     `yaml:"task_from" enum:"first_user|latest_user" doc:"Which message of a conversation is the task."`
	TaskEnvelope  TaskEnvelope `yaml:"task_envelope" enum:"|terminus" doc:"terminus takes the task from between that harness's markers. Conversations only; any user could type the markers."`
	Fallback      string       `yaml:"fallback" doc:"The name of the target that is answered when nothing can be learned. Absent: the first strong target, else the first."`
	DecideTimeout Duration     `yaml:"decide_timeout" range:"1ms..10m" doc:"How long a decision may take before the fallback target is answered; the caller's own deadline may be shorter."`
}

// Backup is a second probe and its checkpoint, which has the same heads.
type Backup struct {
	Probe      string `yaml:"probe" need:"true" doc:"The name of another probe, best one of kind lexical, which has nothing that could fail."`
	Checkpoint string `yaml:"checkpoint" need:"true" path:"true" doc:"Folder with the router.json and router.safetensors for that probe."`
}

// Target is one model a route can choose.
type Target struct {
	Name  string  `yaml:"name" need:"true" doc:"The name callers switch on. Unique in the route."`
	Tier  Tier    `yaml:"tier,omitempty" enum:"strong|weak|" doc:"strong, weak, or absent."`
	Model string  `yaml:"model" need:"true" doc:"The model to call, handed to the caller as it is."`
	Head  string  `yaml:"head" need:"true" doc:"The checkpoint's head that predicts this target. One head a target."`
	Cost  float64 `yaml:"cost" need:"true" range:"0..1e12" doc:"What a call costs, in any unit that all targets of the route share."`
}

// Policy is how quality is traded against cost. After Parse exactly one is set.
type Policy struct {
	QualityWeight *float64 `yaml:"quality_weight,omitempty" range:"0..1" doc:"The weight w of quality in utility = w*p - (1-w)*normalised cost."`
	Tolerance     *float64 `yaml:"tolerance,omitempty" range:"0..1" doc:"The cheapest target is chosen whose probability is at most this much below the best."`
}

// Probe is one source of hidden states.
type Probe struct {
	Kind               ProbeKind      `yaml:"kind" enum:"vllm|lexical" doc:"Where features come from: hidden states of a vLLM server, or the words of the task, without any server."`
	Encoder            string         `yaml:"encoder" need:"vllm" doc:"The model whose hidden states are read; equals the checkpoint's encoder. Kind lexical: pointsman/lexical-1."`
	ServedModel        string         `yaml:"served_model" kind:"vllm" doc:"The name vLLM serves it under. Absent: the encoder."`
	Revision           string         `yaml:"revision" doc:"Free text in the cache key: change it with the weights, the quantisation or the layers."`
	ChatTemplateKwargs map[string]any `yaml:"chat_template_kwargs" kind:"vllm" doc:"Arguments of vLLM's chat template. Part of the cache key."`
	Endpoints          []Endpoint     `yaml:"endpoints" need:"vllm" kind:"vllm" doc:"Where vLLM answers: one or more servers of the same model, each with a folder of its own. The one with the least work is asked."`
	APIKeyEnv          string         `yaml:"api_key_env,omitempty" kind:"vllm" doc:"The environment variable that holds vLLM's API key."`
	APIKeyFile         string         `yaml:"api_key_file,omitempty" kind:"vllm" path:"true" doc:"The file that holds vLLM's API key; white space at its end is dropped."`
	APIKey             Secret         `yaml:"-"`
	MaxInFlight        int            `yaml:"max_in_flight" range:"1..65536" doc:"How many requests one endpoint may have under way at once, each from sending until its artifact is cleaned away."`
	MaxQueue           int            `yaml:"max_queue" kind:"vllm" range:"0..1048576" doc:"How many more may wait for a slot."`
	QueueTimeout       Duration       `yaml:"queue_timeout" kind:"vllm" range:"1ms..1h" doc:"How long one may wait for a slot."`
	RequestTimeout     Duration       `yaml:"request_timeout" kind:"vllm" range:"1ms..1h" doc:"From sending to vLLM's answer."`
	ArtifactTimeout    Duration       `yaml:"artifact_timeout" kind:"vllm" range:"1ms..1h" doc:"From the answer to a free lock and a whole file."`
	MaxArtifactBytes   ByteSize       `yaml:"max_artifact_bytes" kind:"vllm" range:"1KiB..1TiB" doc:"The largest artifact that is read."`
	MaxPromptBytes     ByteSize       `yaml:"max_prompt_bytes" kind:"vllm" range:"1B..1GiB" doc:"The longest task this probe is asked about; a longer one is answered by the fallback target with TASK_TOO_LARGE."`
	MaxOutstanding     *ByteSize      `yaml:"max_outstanding_bytes,omitempty" kind:"vllm" range:"1MiB..1024TiB" doc:"How many bytes of artifacts, by estimate, may be in an endpoint's folder at once; more requests wait, since a full folder can stop vLLM. Absent: half of what the folder's file system holds, divided among the probe's endpoints there, and at most 32GiB."`
	HealthInterval     Duration       `yaml:"health_interval" kind:"vllm" range:"0s..1h" doc:"How often vLLM's /health is asked; an endpoint that fails it twice is passed over until it answers again. 0s: never."`
	ZeroVectors        ZeroVectors    `yaml:"zero_vectors" kind:"vllm" enum:"refuse|allow_slot_0" doc:"Whether hidden states that are all zero are refused; allow_slot_0 is for checkpoints that read the embedding layer."`
	Breaker            Breaker        `yaml:"breaker" kind:"vllm" doc:"When a failing endpoint is left alone."`
	Sweep              Sweep          `yaml:"sweep" kind:"vllm" doc:"The removal of files that were left behind."`
}

// Endpoint is one vLLM server and the folder it shares with this host.
type Endpoint struct {
	BaseURL         string `yaml:"base_url" need:"true" doc:"The URL before /chat/completions, http or https, such as http://127.0.0.1:8000/v1."`
	HiddenStatesDir string `yaml:"hidden_states_dir" need:"true" path:"true" doc:"The folder vLLM writes hidden states to, as this process sees it."`
	ReportedDir     string `yaml:"reported_dir" doc:"The same folder as vLLM sees it, absolute. Absent: the same as hidden_states_dir."`
}

// Breaker is when an endpoint is left alone.
type Breaker struct {
	Failures int      `yaml:"failures" range:"1..1000000" doc:"After so many failures in a row."`
	OpenFor  Duration `yaml:"open_for" range:"1ms..1h" doc:"For so long; then one request tries again."`
}

// Sweep is the removal of files that were left behind.
type Sweep struct {
	Interval Duration `yaml:"interval" range:"10ms..24h" doc:"How often the folder is looked through."`
	MinAge   Duration `yaml:"min_age" range:"10ms..720h" doc:"How old a file must be; more than queue_timeout, request_timeout and artifact_timeout together."`
	All      bool     `yaml:"all" doc:"Whether files that are not ours are removed too; only for a folder of Pointsman's own."`
}

// Cache is what is remembered, and where.
type Cache struct {
	TTL        Duration   `yaml:"ttl" range:"1s..8760h" doc:"How long scores are kept, from when they were computed, on every layer."`
	SecretEnv  string     `yaml:"secret_env,omitempty" doc:"The environment variable with the secret (16 bytes or more) that keys are derived from and values in Redis are sealed with."`
	SecretFile string     `yaml:"secret_file,omitempty" path:"true" doc:"The file with that secret; white space at its end is dropped."`
	Secret     Secret     `yaml:"-"`
	Local      LocalCache `yaml:"local" doc:"The cache in this process."`
	Redis      *Redis     `yaml:"redis,omitempty" doc:"The cache shared by all processes. Absent: none."`
}

// LocalCache is the cache in this process.
type LocalCache struct {
	MaxEntries int `yaml:"max_entries" range:"1..100000000" doc:"How many tasks' scores are kept."`
}

// Redis is the cache shared by all processes.
type Redis struct {
	URL                  string    `yaml:"url" need:"true" doc:"redis://host:port/db, redis+sentinel://host:port,…/master/db or redis+cluster://host:port,…; with rediss for TLS. No user name or password in it."`
	Username             string    `yaml:"username,omitempty" doc:"The ACL user. Absent: Redis's default user."`
	PasswordEnv          string    `yaml:"password_env,omitempty" doc:"The environment variable that holds the password."`
	PasswordFile         string    `yaml:"password_file,omitempty" path:"true" doc:"The file that holds the password; white space at its end is dropped."`
	Password             Secret    `yaml:"-"`
	SentinelUsername     string    `yaml:"sentinel_username,omitempty" doc:"The ACL user of the sentinels. Absent: their default user."`
	SentinelPasswordEnv  string    `yaml:"sentinel_password_env,omitempty" doc:"The environment variable that holds the sentinels' password."`
	SentinelPasswordFile string    `yaml:"sentinel_password_file,omitempty" path:"true" doc:"The file that holds the sentinels' password; white space at its end is dropped."`
	SentinelPassword     Secret    `yaml:"-"`
	OpTimeout            Duration  `yaml:"op_timeout" range:"1ms..100ms" doc:"How long one operation may take before Redis is done without."`
	TLS                  *RedisTLS `yaml:"tls,omitempty" doc:"Whom to trust and what to present; needs a rediss URL."`
}

// RedisTLS is the client's side of TLS to Redis.
type RedisTLS struct {
	CAFile     string `yaml:"ca_file,omitempty" path:"true" doc:"PEM file with the authorities to trust. Absent: the system's."`
	CertFile   string `yaml:"cert_file,omitempty" path:"true" doc:"PEM file with the certificate to present; with key_file."`
	KeyFile    string `yaml:"key_file,omitempty" path:"true" doc:"PEM file with its private key; with cert_file."`
	ServerName string `yaml:"server_name,omitempty" doc:"The name the server's certificate must carry. Absent: the URL's host."`
}

// Log is the log on standard error.
type Log struct {
	Level  LogLevel  `yaml:"level" enum:"debug|info|warn|error" doc:"The least severe level that is written."`
	Format LogFormat `yaml:"format" enum:"json|text" doc:"One JSON object a line, or text for people."`
}

// Record is the file of all decisions.
type Record struct {
	File       string   `yaml:"file" need:"true" path:"true" doc:"The file, one JSON object a line; full ones have .1, .2 and so on appended."`
	MaxBytes   ByteSize `yaml:"max_bytes" range:"64KiB..1TiB" doc:"The size after which a new file is begun."`
	MaxFiles   int      `yaml:"max_files" range:"1..1000" doc:"How many files are kept, the current one included."`
	Queue      int      `yaml:"queue" range:"1..1048576" doc:"How many decisions may wait to be written; more are dropped and counted, so that no decision waits."`
	SecretEnv  string   `yaml:"secret_env,omitempty" doc:"The environment variable with the secret (16 bytes or more) that tasks' digests are made with. Absent: the cache's secret, else a random one for each start."`
	SecretFile string   `yaml:"secret_file,omitempty" path:"true" doc:"The file with that secret; white space at its end is dropped."`
	Secret     Secret   `yaml:"-"`
}

// Readiness is when calls should be sent here.
type Readiness struct {
	RequireProbe bool `yaml:"require_probe" doc:"Whether this replica is not ready while the probe of any route is down (breaker open, or its health check fails, on all endpoints), though a backup would answer. A backup's own probe does not count. A replica without its probe answers fast, so a least-request balancer would send it everything."`
	Canary       bool `yaml:"canary" doc:"Whether each probe must answer one prompt before the service is ready for the first time."`
}

// Reload is how changed files are taken over. SIGHUP reloads in any case.
type Reload struct {
	Watch bool `yaml:"watch" doc:"Whether the files are watched: this one and those it names for checkpoints, tokens, certificates and keys."`
}

// Shutdown is how the service stops after SIGTERM.
type Shutdown struct {
	DrainDelay Duration `yaml:"drain_delay" range:"0s..10m" doc:"How long calls are still accepted after readiness is withdrawn, so that load balancers can turn away."`
	Timeout    Duration `yaml:"timeout" range:"0s..1h" doc:"How long calls under way and sent probes may then take before they are cut off."`
}

// Mode is whether a route's choice is answered.
type Mode string

// The modes of a route.
const (
	ModeServe  Mode = "serve"
	ModeShadow Mode = "shadow"
)

// TaskFrom is which message of a conversation is the task.
type TaskFrom string

// The messages a task is taken from.
const (
	TaskFromFirstUser  TaskFrom = "first_user"
	TaskFromLatestUser TaskFrom = "latest_user"
)

// TaskEnvelope is a known wrapping that the task is taken out of; empty: none.
type TaskEnvelope string

// The known wrappings.
const (
	TaskEnvelopeTerminus TaskEnvelope = "terminus"
)

// Tier tells the dear, capable target from the cheap one; empty: neither.
type Tier string

// The tiers of a target.
const (
	TierStrong Tier = "strong"
	TierWeak   Tier = "weak"
)

// ProbeKind is where a probe's features come from.
type ProbeKind string

// The kinds of probes.
const (
	ProbeKindVLLM    ProbeKind = "vllm"    // a vLLM server with the hidden-states connector
	ProbeKindLexical ProbeKind = "lexical" // the built-in encoder, on the CPU
)

// ZeroVectors is what is done with hidden states that are all zero.
type ZeroVectors string

// The ways of treating hidden states that are all zero.
const (
	ZeroVectorsRefuse     ZeroVectors = "refuse"
	ZeroVectorsAllowSlot0 ZeroVectors = "allow_slot_0"
)

// LogLevel is the least severe level that is logged.
type LogLevel string

// The log levels.
const (
	LogLevelDebug LogLevel = "debug"
	LogLevelInfo  LogLevel = "info"
	LogLevelWarn  LogLevel = "warn"
	LogLevelError LogLevel = "error"
)

// LogFormat is the form of log lines.
type LogFormat string

// The log formats.
const (
	LogFormatJSON LogFormat = "json"
	LogFormatText LogFormat = "text"
)
