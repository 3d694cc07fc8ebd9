package stack

import (
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed npm
var manifests embed.FS

// Config says which dynoxide to run and on what. The zero value runs the installed one in memory.
type Config struct {
	Binary   string       // path of dynoxide; "" means look for it, see Find
	Dir      string       // where the search for the project's .local folder begins; "" means the working directory
	DataFile string       // SQLite file to serve, created where it is missing; "" means in memory
	Logger   *slog.Logger // nil means silent
}

// Find returns the path of the dynoxide that Start would run: cfg.Binary, or the one that `make setup` installed into
// .local of cfg.Dir, of the program's own folder or of any folder above these, or the one on the PATH.
// Errors: ErrNotInstalled.
func Find(cfg Config) (string, error) {
	if cfg.Binary != "" {
		if !executable(cfg.Binary) {
			return "", fmt.Errorf("%w: %s is no executable file", ErrNotInstalled, cfg.Binary)
		}
		return filepath.Abs(cfg.Binary)
	}
	for _, start := range startingPoints(cfg.Dir) {
		for dir := start; ; dir = filepath.Dir(dir) {
			if path := filepath.Join(dir, installedPath()); executable(path) {
				return path, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if path, err := exec.LookPath("dynoxide"); err == nil {
		return filepath.Abs(path)
	}
	return "", notInstalled()
}

// Platform names this platform as npm does: "linux-x64", "darwin-arm64".
func Platform() string {
	system, cpu := runtime.GOOS, runtime.GOARCH
	if system == "windows" {
		system = "win32"
	}
	if cpu == "amd64" {
		cpu = "x64"
	}
	return system + "-" + cpu
}

func notInstalled() error {
	if _, err := fs.Stat(manifests, "npm/"+Platform()+"/package-lock.json"); err != nil {
		return fmt.Errorf("%w: version %s is not published for %s: put a dynoxide on your PATH, or use another DynamoDB by its endpoint",
			ErrNotInstalled, Version, Platform())
	}
	return fmt.Errorf("%w for %s: it is neither in %s of this folder or one above, nor on the PATH: run `make setup` in the project; elsewhere, put that folder on the PATH",
		ErrNotInstalled, Platform(), filepath.Dir(installedPath()))
}

// installedPath is where npm/install.sh puts dynoxide, from the project's root.
func installedPath() string {
	name := "dynoxide"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(".local", "dynoxide", Version, "node_modules", "@dynoxide", Platform(), name)
}

func startingPoints(dir string) []string {
	var starts []string
	if abs, err := filepath.Abs(dir); err == nil {
		starts = append(starts, abs)
	}
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			starts = append(starts, filepath.Dir(target))
		}
	}
	return starts
}

func executable(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return false
	}
	return runtime.GOOS == "windows" && strings.HasSuffix(path, ".exe") || info.Mode()&0o111 != 0
}
