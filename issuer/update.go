package issuer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/optimistic"
)

// discoveryDocument holds the fields of OpenID Connect Discovery 1.0, section
// 3, that clouds read.
type discoveryDocument struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

func newDiscoveryDocument(issuer string, keys keySet) discoveryDocument {
	return discoveryDocument{Issuer: issuer, JWKSURI: strings.TrimSuffix(issuer, "/") + "/" + KeysFile,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Algorithms: keys.algorithms()}
}

// file is a file of the Store. The zero value is a missing one.
type file struct {
	content []byte
	version string
}

// paths are the paths of the files, in the order of reads and writes. The
// record comes first. A key that another publisher removes meanwhile is then
// not adopted again.
var paths = []string{RecordFile, KeysFile, DiscoveryFile}

func (p *Publisher) read(ctx context.Context) (map[string]file, error) {
	files := map[string]file{}
	for _, path := range paths {
		content, version, err := p.Store.Read(ctx, path)
		switch {
		case err == nil:
			files[path] = file{append([]byte{}, content...), version}
		case !errors.Is(err, ErrNotExist):
			return nil, fmt.Errorf("read %s of the store: %w", path, err)
		}
	}
	return files, nil
}

// change returns the record after a change.
type change func(ctx context.Context, r record) (record, error)

// update changes the record and publishes the documents of the new record. It
// starts again if another publisher writes meanwhile.
func (p *Publisher) update(ctx context.Context, change change) (result Result, err error) {
	changed := func(err error) bool { return errors.Is(err, ErrChanged) }
	err = optimistic.Write(ctx, changed, func() error { return p.tryUpdate(ctx, change, &result) })
	if !changed(err) {
		return result, err
	}
	e := self.Unanswered("", fmt.Errorf("%d tries met other writers: %w", optimistic.Tries, err))
	e.Remedy = "check that nothing else writes these files and that the store answers the newest ones"
	return result, e
}

func (p *Publisher) tryUpdate(ctx context.Context, change change, result *Result) error {
	stored, err := p.read(ctx)
	if err != nil {
		return err
	}
	if err := checkOwner(stored[DiscoveryFile].content, p.Issuer); err != nil {
		return err
	}
	before, err := parseRecord(stored[RecordFile].content, p.Issuer)
	if err != nil {
		return err
	}
	published, err := parsePublished(stored[KeysFile].content)
	if err != nil {
		return err
	}
	after, err := change(ctx, before.adopt(published))
	if err != nil {
		return err
	}
	want := after.published()
	if len(want) > maxKeys {
		return self.Misconfigured("remove old keys", "%s", tooMany(len(want)))
	}
	if err := p.write(ctx, stored, after, want, result); err != nil {
		return err
	}
	result.Added, result.Removed = want.lacking(published), published.lacking(want)
	result.Leaving = after.leaving()
	return nil
}

// checkOwner refuses the documents of another issuer. A truncated document has
// no owner.
func checkOwner(discovery []byte, issuer string) error {
	var d discoveryDocument
	if !json.Valid(discovery) {
		return nil
	}
	if err := exactjson.Unmarshal(discovery, &d); err != nil || d.Issuer != issuer {
		return foreign(DiscoveryFile, d.Issuer, issuer)
	}
	return nil
}

func foreign(path, found, issuer string) error {
	return self.Misconfigured("name that issuer or another store, or delete the file",
		"%s of the store belongs to the issuer %.999q, not to %q", path, found, issuer)
}

// parsePublished returns no keys for content that no cloud can read. The
// Publisher replaces such content.
func parsePublished(content []byte) (keySet, error) {
	set, err := parseKeySet(content)
	switch {
	case errors.Is(err, errNoKeySet):
		return nil, nil
	case err != nil:
		return nil, self.Misconfigured("edit the file or delete it", "%s of the store: %s", KeysFile, err)
	}
	return set, nil
}

// write writes the files that differ. It writes the record before the keys,
// even an unchanged record: its condition proves that no other publisher has
// removed a key meanwhile.
func (p *Publisher) write(ctx context.Context, stored map[string]file, r record, want keySet, result *Result) error {
	next := map[string][]byte{}
	for path, document := range map[string]any{
		RecordFile: r, KeysFile: map[string]keySet{"keys": want}, DiscoveryFile: newDiscoveryDocument(p.Issuer, want),
	} {
		content, err := json.Marshal(document)
		switch {
		case err != nil:
			return err
		case len(content) > MaxFile:
			return self.Misconfigured("give this issuer a new store, or delete "+RecordFile,
				"%s would have %d bytes, more than %d", path, len(content), MaxFile)
		}
		next[path] = content
	}
	differs := func(path string) bool { return !bytes.Equal(next[path], stored[path].content) }
	for _, path := range paths {
		if !differs(path) && (path != RecordFile || !differs(KeysFile)) {
			continue
		}
		if err := p.Store.Write(ctx, path, next[path], stored[path].version); err != nil {
			return fmt.Errorf("write %s of the store: %w", path, err)
		}
		result.Written = append(result.Written, path)
	}
	return nil
}
