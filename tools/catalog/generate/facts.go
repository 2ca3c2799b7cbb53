package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The lines of a file of facts, cut at tabs; comments and empty lines left out.
func rows(name string) ([][]string, error) {
	text, err := os.ReadFile(filepath.Join("facts", name))
	if err != nil {
		return nil, err
	}
	var found [][]string
	for _, line := range strings.Split(string(text), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			found = append(found, strings.Split(line, "\t"))
		}
	}
	return found, nil
}

// Minors in which something exists.
type presence map[int]bool

// The builders that say it; an error if it comes and goes.
func (p presence) render(first, last int) (string, error) {
	since, until := first, last+1
	for !p[since] && since <= last {
		since++
	}
	for until > since && !p[until-1] {
		until--
	}
	for minor := since; minor < until; minor++ {
		if !p[minor] {
			return "", fmt.Errorf("there is a gap at %d", minor)
		}
	}
	text := ""
	if since != first {
		text += fmt.Sprintf(".since(%d)", since)
	}
	if until != last+1 {
		text += fmt.Sprintf(".until(%d)", until)
	}
	return text, nil
}

// A default, if all that say one agree.
func agreed(said []string) string {
	for _, builtin := range said {
		if builtin != said[0] {
			return ""
		}
	}
	if len(said) == 0 {
		return ""
	}
	return said[0]
}

func optional(found [][]string, err error) ([][]string, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return found, err
}
