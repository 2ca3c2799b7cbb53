module nodestrap.io/lab/ignition-spec-2

go 1.26.0

require (
	github.com/aws/aws-sdk-go v1.55.8
	github.com/coreos/go-systemd v0.0.0-20181031085051-9002847aa142
	github.com/coreos/ignition v0.35.0
	github.com/pin/tftp v2.1.0+incompatible
	github.com/sigma/vmw-guestinfo v0.0.0-20160204083807-95dd4126d6e8
	github.com/vmware/vmw-ovflib v0.0.0-20170608004843-1f217b9dc714
	golang.org/x/net v0.62.0
)

require (
	github.com/ajeddeloh/go-json v0.0.0-20160803184958-73d058cf8437 // indirect
	github.com/coreos/go-semver v0.3.1 // indirect
	github.com/godbus/dbus v0.0.0-20190726142602-4481cbc300e2 // indirect
	github.com/jmespath/go-jmespath v0.4.0 // indirect
	github.com/sigma/bdoor v0.0.0-20160202064022-babf2a4017b0 // indirect
	github.com/smartystreets/goconvey v1.8.1 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/vincent-petithory/dataurl v1.0.0 // indirect
	github.com/vmware/vmw-guestinfo v0.0.0-20170707015358-25eff159a728 // indirect
	go4.org v0.0.0-20260112195520-a5071408f32f // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/godbus/dbus => github.com/godbus/dbus v0.0.0-20190726142602-4481cbc300e2
