// The archives of addons: where they are looked for, how they are unpacked, and what of them systemd gets to see.
package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	osRelease        = "/usr/lib/os-release"
	defaultReference = "com.coreos.cl"
)

type assets struct {
	Value struct {
		Bin      []string `json:"bin"`
		Network  []string `json:"network"`
		Units    []string `json:"units"`
		Sysusers []string `json:"sysusers"`
		Tmpfiles []string `json:"tmpfiles"`
		Udev     []string `json:"udev_rules"`
	} `json:"value"`
}

// The first one that has the archive wins.
func stores() ([]string, error) {
	version, err := osVersion()
	return []string{
		"/usr/share/torcx/store",
		"/usr/share/oem/torcx/store/" + version,
		"/usr/share/oem/torcx/store",
		"/var/lib/torcx/store/" + version,
		"/var/lib/torcx/store",
	}, err
}

// As it is written: whoever quotes it gets the quotes.
func osVersion() (string, error) {
	file, err := os.Open(osRelease)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "VERSION_ID="); found {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s has no VERSION_ID", osRelease)
}

func findArchive(image image) (string, error) {
	stores, err := stores()
	if err != nil {
		return "", err
	}
	names := []string{image.Name + ":" + image.Reference + ".torcx.tgz"}
	if image.Reference == defaultReference {
		names = append(names, image.Name+".torcx.tgz")
	}
	for _, store := range stores {
		for _, name := range names {
			path := filepath.Join(store, name)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("in none of %s", strings.Join(stores, ", "))
}

func unpack(archive, root string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	// Nothing is written outside of it, whatever the archive says.
	inside, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer inside.Close()
	for entries := tar.NewReader(unzipped); ; {
		header, err := entries.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = unpackEntry(inside, header, entries)
		}
		if err != nil {
			return err
		}
	}
}

func unpackEntry(inside *os.Root, header *tar.Header, content io.Reader) error {
	name := filepath.Clean(strings.TrimPrefix(header.Name, "/"))
	mode := os.FileMode(header.Mode).Perm()
	if header.Typeflag == tar.TypeDir {
		return inside.MkdirAll(name, mode)
	}
	if err := inside.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		file, err := inside.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, content); err != nil {
			return err
		}
		return file.Close()
	case tar.TypeSymlink:
		return inside.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return inside.Link(header.Linkname, name)
	}
	return fmt.Errorf("%s is neither file, folder nor link", header.Name)
}

// An addon without a list of its assets shows nothing.
func propagate(root string) error {
	var assets assets
	err := readJSON(filepath.Join(root, ".torcx/manifest.json"), &assets, "image-manifest-v0")
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for folder, paths := range map[string][]string{
		binaries:               assets.Value.Bin,
		"/run/systemd/network": assets.Value.Network,
		"/run/systemd/system":  assets.Value.Units,
		"/run/sysusers.d":      assets.Value.Sysusers,
		"/run/tmpfiles.d":      assets.Value.Tmpfiles,
		"/run/udev/rules.d":    assets.Value.Udev,
	} {
		for _, path := range paths {
			if err := link(filepath.Join(root, path), folder); err != nil {
				return err
			}
		}
	}
	return nil
}

func link(asset, folder string) error {
	if _, err := os.Lstat(asset); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.Symlink(asset, filepath.Join(folder, filepath.Base(asset)))
}
