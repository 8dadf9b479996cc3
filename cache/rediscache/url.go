package rediscache

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is what a URL says.
type target struct {
	addrs              []string // host:port
	username, password string
	db                 int
	master             string // Sentinel's name for the master; empty without Sentinel
	cluster            bool
	tls                bool
}

// CheckURL reports what is wrong with a URL, for [Config.URL], without quoting any part that could be a password.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// parseURL reads a URL of one of the schemes of [Config]. net/url is not used for the whole, since it takes no list of hosts. No error
// quotes any part that could be a password.
func parseURL(text string) (target, error) {
	fail := func(why string) (target, error) {
		return target{}, fmt.Errorf("%s; want redis://host:port/db, redis+sentinel://host:port,…/master/db or "+
			"redis+cluster://host:port,…, or the same with rediss for TLS", why)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return fail("no scheme")
	}
	var t target
	var sentinel bool
	switch scheme {
	case "redis", "rediss":
	case "redis+sentinel", "rediss+sentinel":
		sentinel = true
	case "redis+cluster", "rediss+cluster":
		t.cluster = true
	default:
		return fail("unknown scheme")
	}
	t.tls = strings.HasPrefix(scheme, "rediss")
	if strings.ContainsAny(rest, "?#") {
		return fail("a query or fragment is not supported (a ? or # in a password is written %3F or %23)")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		var err error
		if t.username, t.password, err = credentials(authority[:at]); err != nil {
			return fail("user or password is not percent-encoded")
		}
		authority = authority[at+1:]
	}
	port := "6379"
	if sentinel {
		port = "26379"
	}
	var err error
	if t.addrs, err = addresses(authority, port); err != nil {
		return fail(err.Error())
	}
	if !sentinel && !t.cluster && len(t.addrs) > 1 {
		return fail("several hosts, which need a +sentinel or +cluster scheme")
	}
	if sentinel {
		t.master, path, _ = strings.Cut(path, "/")
		if t.master == "" {
			return fail("no name of the master behind the sentinels")
		}
	}
	if t.db, err = database(path, t.cluster); err != nil {
		return fail(err.Error())
	}
	return t, nil
}

func database(path string, cluster bool) (int, error) {
	if path == "" {
		return 0, nil
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return 0, errors.New("database is not a number")
	}
	if cluster && db != 0 {
		return 0, errors.New("a cluster has only database 0")
	}
	return db, nil
}

func credentials(userinfo string) (username, password string, err error) {
	user, pass, _ := strings.Cut(userinfo, ":")
	if username, err = url.PathUnescape(user); err != nil {
		return "", "", err
	}
	password, err = url.PathUnescape(pass)
	return username, password, err
}

// addresses splits a list of hosts, each with or without a port.
func addresses(list, defaultPort string) ([]string, error) {
	var addrs []string
	for host := range strings.SplitSeq(list, ",") {
		port := defaultPort
		if strings.HasSuffix(host, "]") { // [IPv6] without a port
			host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		} else if strings.Contains(host, ":") {
			var err error
			if host, port, err = net.SplitHostPort(host); err != nil {
				return nil, errors.New("a host is malformed")
			}
		}
		if host == "" {
			return nil, errors.New("no host")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("a port is not from 1 to 65535")
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}
