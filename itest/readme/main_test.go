// Package readme runs the commands of the documentation: what a reader copies must work.
package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// root is the repository, binary the program built from it.
var root, binary string

func TestMain(m *testing.M) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(filepath.Dir(binary))
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// build compiles plainly, so that the cache of other builds serves.
func build() error {
	var err error
	if root, err = filepath.Abs(filepath.Join("..", "..")); err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "snowmelt-readme-")
	if err != nil {
		return fmt.Errorf("making a folder for the binary: %w", err)
	}
	binary = filepath.Join(dir, "snowmelt")
	c := exec.Command("go", "build", "-o", binary, ".")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
}
