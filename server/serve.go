package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/pointsman-dev/pointsman/server/config"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// Serve runs the service of a configuration file until ctx ends: it builds
// everything, binds both ports, serves, reloads when a file changes or a SIGHUP comes,
// and drains.
func Serve(ctx context.Context, configPath string, stderr io.Writer, opts ...Option) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // from now on, so that an early one does no harm
	defer signal.Stop(hangups)
	cfg, err := config.Load(configPath)
	if err != nil {
		return err
	}
	lines := newLineBuffer(stderr)
	defer lines.flush()
	log := slog.New(lines.handler(newLogger(cfg.Log, lines).Handler()))
	s, err := New(cfg, log, opts...)
	if err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	telemetry.TellErrors(s.log)
	s.tuneGarbage()
	for _, w := range s.Warnings() {
		log.WarnContext(ctx, "configuration", "warning", w)
	}
	grpcListener, adminListener, err := listen(ctx, cfg)
	if err != nil {
		return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	reloading, stop := context.WithCancel(ctx)
	var reloads sync.WaitGroup
	r := &reloader{path: configPath, server: s, log: log}
	reloads.Go(func() { r.run(reloading, hangups) })
	defer reloads.Wait()
	defer stop()
	return s.Serve(ctx, grpcListener, adminListener)
}

// listen binds the ports of a configuration, both or none.
func listen(ctx context.Context, cfg *config.Config) (grpcListener, adminListener net.Listener, err error) {
	var lc net.ListenConfig
	if grpcListener, err = lc.Listen(ctx, "tcp", cfg.GRPC.Listen); err != nil {
		return nil, nil, fmt.Errorf("grpc.listen: %w", err)
	}
	if adminListener, err = lc.Listen(ctx, "tcp", cfg.Admin.Listen); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("admin.listen: %w", err), grpcListener.Close())
	}
	return grpcListener, adminListener, nil
}

// newLogger makes the log that a configuration asks for, but for the level,
// which New gives its level.
func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	if cfg.Format == config.LogFormatText {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// logLevel is a configured level in the log's own terms.
func logLevel(level config.LogLevel) slog.Level {
	switch level {
	case config.LogLevelDebug:
		return slog.LevelDebug
	case config.LogLevelWarn:
		return slog.LevelWarn
	case config.LogLevelError:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
