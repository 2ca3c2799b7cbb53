// A stand-in for torcx-generator, which cannot be had any more: it puts the addons of the wanted profile into the system, once a boot.
//
// Reads the profiles of the image and of the machine, and the archives of the stores. Makes /run/torcx, links in /run for systemd, and,
// if nothing was missing, the seal /run/metadata/torcx. Exit status: 0 sealed or sealed before, 1 an addon is missing or damaged.
// It takes archives (tgz) only, no squashfs, and reads no configuration of its own.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	runFolder = "/run/torcx"
	binaries  = runFolder + "/bin"
	unpacked  = runFolder + "/unpack"
	sealed    = "/run/metadata/torcx"
	profile   = runFolder + "/profile.json"
	// systemd throws away what a generator says.
	logFile = "/run/nodestrap-lab-torcx.log"
)

var log io.Writer = os.Stderr

func say(format string, values ...any) { fmt.Fprintf(log, "torcx-generator: "+format+"\n", values...) }

func main() {
	if _, err := os.Stat(runFolder); err == nil {
		return
	}
	if file, err := os.Create(logFile); err == nil {
		log = io.MultiWriter(os.Stderr, file)
	}
	if err := apply(); err != nil {
		say("%v", err)
		os.Exit(1)
	}
}

func apply() error {
	for _, folder := range []string{binaries, unpacked, filepath.Dir(sealed)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("tmpfs", unpacked, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", unpacked, err)
	}
	wanted, err := wantedProfiles()
	if err != nil {
		return err
	}
	// All of them are tried, so that the log names each that is missing.
	var failures []error
	for _, image := range wanted.images {
		if err := install(image); err != nil {
			failures = append(failures, fmt.Errorf("%s:%s: %w", image.Name, image.Reference, err))
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if err := os.WriteFile(profile, wanted.json(), 0o444); err != nil {
		return err
	}
	if err := seal(wanted); err != nil {
		return err
	}
	return syscall.Mount("", unpacked, "", syscall.MS_REMOUNT|syscall.MS_RDONLY|syscall.MS_NOSUID|syscall.MS_NODEV, "")
}

func install(image image) error {
	archive, err := findArchive(image)
	if err != nil {
		return err
	}
	root := filepath.Join(unpacked, image.Name)
	if err := unpack(archive, root); err != nil {
		return fmt.Errorf("unpacking %s: %w", archive, err)
	}
	say("%s is unpacked to %s", archive, root)
	return propagate(root)
}

func seal(wanted wanted) error {
	values := [][2]string{
		{"TORCX_LOWER_PROFILES", strings.Join(wanted.lower, ":")},
		{"TORCX_UPPER_PROFILE", wanted.upper},
		{"TORCX_PROFILE_PATH", profile},
		{"TORCX_BINDIR", binaries},
		{"TORCX_UNPACKDIR", unpacked},
	}
	var text strings.Builder
	for _, value := range values {
		fmt.Fprintf(&text, "%s=\"%s\"\n", value[0], value[1])
	}
	return os.WriteFile(sealed, []byte(text.String()), 0o444)
}
