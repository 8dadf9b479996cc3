// Package test holds what crosses packages: the import rule, and the service
// driven from outside through its real ports.
package test
