//go:build tools

// Package tools holds what Ignition 0.35, the last release of spec 2, is built from. It comes from before Go had modules and
// pins nothing itself: go.mod names the versions that its release was made with, or the nearest that the registry has.
// Its engine is in a package called internal, which nobody can import: so its dependencies are listed here.
package tools

import (
	_ "github.com/aws/aws-sdk-go/aws"
	_ "github.com/aws/aws-sdk-go/aws/credentials/ec2rolecreds"
	_ "github.com/aws/aws-sdk-go/service/s3/s3manager"
	_ "github.com/coreos/go-systemd/dbus"
	_ "github.com/coreos/ignition/validate"
	_ "github.com/pin/tftp"
	_ "github.com/sigma/vmw-guestinfo/rpcvmx"
	_ "github.com/sigma/vmw-guestinfo/vmcheck"
	_ "github.com/vmware/vmw-ovflib"
	_ "golang.org/x/net/http/httpproxy"
)
