package issuer

import (
	"context"
	"errors"
)

// The files of an issuer, by their paths below it.
const (
	DiscoveryFile = ".well-known/openid-configuration" // application/json
	KeysFile      = "openid/v1/jwks"                   // application/jwk-set+json
	RecordFile    = ".workloadid/keys.json"            // application/json; states until when each key is published
)

// MaxFile is the largest size of a file, in bytes. A [Store] refuses a larger
// one with an error, before it reads the file.
const MaxFile = 1 << 20

// A Store keeps the files of one issuer. Packages directory, s3, azblob and
// gcppool each have one; others can write more. Implementations are safe for
// concurrent use.
type Store interface {
	// Read returns a file and its version, which Write compares. A missing file
	// is ErrNotExist.
	Read(ctx context.Context, path string) (content []byte, version string, err error)

	// Write replaces a file whose version is still the given one. If version is
	// "", it creates a file that does not exist. Otherwise it changes nothing
	// and returns ErrChanged. Readers see the old content or the new content,
	// never a part. The Store sets ContentType(path) and "Cache-Control:
	// public, max-age=300", so clouds see a new key within five minutes.
	Write(ctx context.Context, path string, content []byte, version string) error
}

var (
	// ErrNotExist is the error of a file that is missing in the Store.
	ErrNotExist = errors.New("the file does not exist")
	// ErrChanged is the error of a Write whose version is outdated. The
	// publisher reads again.
	ErrChanged = errors.New("the file has changed")
)

// ContentType returns the media type of a file.
func ContentType(path string) string {
	if path == KeysFile {
		return "application/jwk-set+json"
	}
	return "application/json"
}
