//go:build tools

// Package etcd pins the etcd that control planes are rendered with, to be asked for its flags; the lab runs another.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)
