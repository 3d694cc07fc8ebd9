package stack

import "errors"

// The errors of this package, for errors.Is.
var (
	// ErrNotInstalled is returned by Find, Start and Restart where no dynoxide is there to run. Its text names the
	// platform, the places that were looked at and what to do.
	ErrNotInstalled = errors.New("stack: dynoxide is not installed")

	// ErrStart is returned by Start and Restart where dynoxide did not become ready. Its text carries what dynoxide said.
	ErrStart = errors.New("stack: dynoxide did not start")

	// ErrDataFile is returned by Start where Config.DataFile cannot be a data file: its folder is missing, it is a folder
	// itself, or it holds something else than a database.
	ErrDataFile = errors.New("stack: unusable data file")

	// ErrTableDiffers is returned by CreateTables where a table of that name exists with other keys, another index or
	// without the stream that was asked for. The table is left as it is.
	ErrTableDiffers = errors.New("stack: a table of that name exists and is another one")

	// ErrTableNotReady is returned by CreateTables where a table was not active within the time allowed.
	ErrTableNotReady = errors.New("stack: table did not become active")

	// errPortTaken is what a start fails with where somebody took the chosen port first: the next port is tried.
	errPortTaken = errors.New("port taken")
)
