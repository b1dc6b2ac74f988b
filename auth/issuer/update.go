package issuer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// maxTries is how often a publication meets the writes of others before it is given up.
const maxTries = 8

// discoveryDocument holds what clouds read of OpenID Connect Discovery 1.0, section 3.
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

// file is a file of the Store. Its content is nil if there is none.
type file struct {
	path, version string
	content       []byte
}

// files are those of the Store at one time.
type files struct{ record, keys, discovery file }

// read reads the record first, so that keys which another publisher removes meanwhile are not adopted again.
func (p *Publisher) read(ctx context.Context) (f files, err error) {
	f.record.path, f.keys.path, f.discovery.path = RecordFile, KeysFile, DiscoveryFile
	for _, to := range []*file{&f.record, &f.keys, &f.discovery} {
		content, version, err := p.Store.Read(ctx, to.path)
		switch {
		case errors.Is(err, ErrNotExist):
			continue
		case err != nil:
			return f, fmt.Errorf("read %s of the store: %w", to.path, err)
		case len(content) > MaxFile:
			return f, self.Misconfigured("delete the file", "%s of the store has %d bytes, more than %d", to.path, len(content), MaxFile)
		}
		to.content, to.version = append([]byte{}, content...), version
	}
	return f, nil
}

// update changes the record and publishes what follows from it. It begins anew when others write meanwhile.
func (p *Publisher) update(ctx context.Context, change func(record) (record, error)) (result Result, err error) {
	changed := func(err error) bool { return errors.Is(err, ErrChanged) }
	pauses := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: maxTries}
	err = retry.OnError(pauses, changed, func() error { return p.tryUpdate(ctx, change, &result) })
	if !changed(err) {
		return result, err
	}
	e := self.Unanswered("", fmt.Errorf("%d tries met other writers: %w", maxTries, err))
	e.Remedy = "check that nothing else writes these files and that the store answers the newest ones"
	return result, e
}

func (p *Publisher) tryUpdate(ctx context.Context, change func(record) (record, error), result *Result) error {
	stored, err := p.read(ctx)
	if err != nil {
		return err
	}
	if err := checkOwner(stored.discovery, p.Issuer); err != nil {
		return err
	}
	before, err := parseRecord(stored.record.content, p.Issuer)
	if err != nil {
		return err
	}
	published, err := parsePublished(stored.keys.content)
	if err != nil {
		return err
	}
	after, err := change(before.adopt(published))
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
	result.Leaving, result.keys = after.leaving(), len(want)
	return nil
}

// checkOwner refuses the documents of another issuer. Half a document has no owner.
func checkOwner(discovery file, issuer string) error {
	var d discoveryDocument
	if discovery.content == nil || !json.Valid(discovery.content) {
		return nil
	}
	if err := json.Unmarshal(discovery.content, &d); err != nil || d.Issuer != issuer {
		return foreign(DiscoveryFile, d.Issuer, issuer)
	}
	return nil
}

func foreign(path, found, issuer string) error {
	return self.Misconfigured("name that issuer or another store, or delete the file", "%s of the store belongs to the issuer %.999q, not to %q", path, found, issuer)
}

// parsePublished returns no keys for content that no cloud can read. It is replaced.
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

// write writes what differs. Keys are written only after the record, even if that is unchanged: its condition proves that
// no other publisher has removed a key meanwhile.
func (p *Publisher) write(ctx context.Context, stored files, r record, want keySet, result *Result) error {
	keys, err := want.marshal()
	if err != nil {
		return err
	}
	recordContent, err := r.marshal()
	if err != nil {
		return err
	}
	discovery, err := json.Marshal(newDiscoveryDocument(p.Issuer, want))
	if err != nil {
		return err
	}
	newKeys := !bytes.Equal(keys, stored.keys.content)
	for _, f := range []struct {
		file
		next []byte
		due  bool
	}{
		{stored.record, recordContent, newKeys || !bytes.Equal(recordContent, stored.record.content)},
		{stored.keys, keys, newKeys},
		{stored.discovery, discovery, !bytes.Equal(discovery, stored.discovery.content)},
	} {
		if !f.due {
			continue
		}
		if len(f.next) > MaxFile {
			return self.Misconfigured("give this issuer a new store, or delete "+RecordFile, "%s would have %d bytes, more than %d", f.path, len(f.next), MaxFile)
		}
		if err := p.Store.Write(ctx, f.path, f.next, f.version); err != nil {
			return fmt.Errorf("write %s of the store: %w", f.path, err)
		}
		result.Written = append(result.Written, f.path)
	}
	return nil
}
