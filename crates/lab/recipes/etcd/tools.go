//go:build tools

// Package etcd pins the etcd programs that the lab runs; `go install` refuses their modules because of replace lines.
package etcd

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
