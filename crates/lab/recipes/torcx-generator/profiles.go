// Which addons are wanted: what the image says, changed by what the machine says.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	nextProfile = "/etc/torcx/next-profile"
	// A relic: "yes" or "no" puts another profile in the place of the vendor's.
	dockerFlag = "/etc/coreos/docker-1.12"
)

// In order of precedence, the last one wins.
var profileFolders = []string{"/usr/share/torcx/profiles", "/usr/share/oem/torcx/profiles", "/etc/torcx/profiles"}

type image struct {
	Name      string `json:"name"`
	Reference string `json:"reference"`
}

type profileFile struct {
	Kind  string `json:"kind"`
	Value struct {
		Images []image `json:"images"`
	} `json:"value"`
}

type wanted struct {
	lower  []string
	upper  string
	images []image
}

func wantedProfiles() (wanted, error) {
	var wanted wanted
	for _, name := range []string{vendorProfile(), "oem"} {
		if path := profilePath(name); path != "" {
			if err := wanted.merge(path); err != nil {
				return wanted, err
			}
			wanted.lower = append(wanted.lower, name)
		}
	}
	line, err := os.ReadFile(nextProfile)
	if err != nil {
		say("only what the image says counts: %v", err)
		return wanted, nil
	}
	name := strings.TrimSuffix(strings.TrimSpace(string(line)), ".json")
	path := profilePath(name)
	if path == "" {
		say("only what the image says counts: there is no profile %q", name)
		return wanted, nil
	}
	wanted.upper = name
	return wanted, wanted.merge(path)
}

func vendorProfile() string {
	answer, err := os.ReadFile(dockerFlag)
	if text := strings.TrimSpace(string(answer)); err == nil && (text == "yes" || text == "no") {
		return "docker-1.12-" + text
	}
	return "vendor"
}

func profilePath(name string) string {
	found := ""
	for _, folder := range profileFolders {
		path := filepath.Join(folder, name+".json")
		if _, err := os.Stat(path); name != "" && err == nil {
			found = path
		}
	}
	return found
}

// An image of a later profile takes the place of that of the same name; one without a reference takes it away.
func (wanted *wanted) merge(path string) error {
	var profile profileFile
	if err := readJSON(path, &profile, "profile-manifest-v0", "profile-manifest-v1"); err != nil {
		return err
	}
	for _, image := range profile.Value.Images {
		place := slices.IndexFunc(wanted.images, hasName(image.Name))
		switch {
		case place >= 0 && image.Reference == "":
			wanted.images = slices.Delete(wanted.images, place, place+1)
		case place >= 0:
			wanted.images[place] = image
		case image.Reference != "":
			wanted.images = append(wanted.images, image)
		}
	}
	return nil
}

func (wanted wanted) json() []byte {
	profile := profileFile{Kind: "profile-manifest-v0"}
	profile.Value.Images = append([]image{}, wanted.images...)
	text, err := json.Marshal(profile)
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

func hasName(name string) func(image) bool {
	return func(other image) bool { return other.Name == name }
}

func readJSON(path string, value any, kinds ...string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := errors.Join(json.Unmarshal(text, &kind), json.Unmarshal(text, value)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Contains(kinds, kind.Kind) {
		return fmt.Errorf("%s is of the kind %q", path, kind.Kind)
	}
	return nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
