package issuer

import (
	"cmp"
	"slices"
	"time"

	"github.com/workloadid/workloadid/internal/exactjson"
)

const (
	// maxGap is the longest time between two reads of the keys that counts
	// towards the absence of a key.
	maxGap = 10 * time.Minute
	// minGap is the shortest absence that is written, because otherwise each
	// read would write the record. With reads every minute, one of them lies
	// between minGap and maxGap after the last one that was written.
	minGap = 3 * time.Minute
	// maxSeconds bounds durations, so that they do not overflow.
	maxSeconds = int64(maxLifetime / time.Second)
	// recordVersion changes if older publishers would misread the record.
	recordVersion = 1
)

// record states until when each key is published. Its methods return changed
// copies.
type record struct {
	Version int     `json:"version"`
	Issuer  string  `json:"issuer"`
	Keys    []entry `json:"keys"`
	// Lifetime is the MaxTokenLifetime, in seconds, that a publisher has set.
	// Publishers that set none use it.
	Lifetime int64 `json:"maxTokenLifetimeSeconds,omitempty"`
}

type entry struct {
	Key publicKey `json:"key"`
	// Removed excludes a leaked key.
	Removed bool `json:"removed,omitempty"`
	// Absence is nil if the last read returned the key.
	Absence *absence `json:"absence,omitempty"`
}

// absence is the time in which no read returned a key.
type absence struct {
	Seconds int64 `json:"seconds"`
	// Until is the time of the last read that is counted.
	Until time.Time `json:"until"`
}

func (a absence) total() time.Duration { return time.Duration(a.Seconds) * time.Second }

// parseRecord returns an empty record for a missing one. It does not repair a
// malformed one: without the record, a leaked key would come back.
func parseRecord(content []byte, issuer string) (record, error) {
	r := record{Version: recordVersion, Issuer: issuer, Keys: []entry{}}
	if content == nil {
		return r, nil
	}
	r = record{}
	const remedy = "restore the file, or delete it: published keys stay, and removed keys come back while the API server shows them"
	if err := exactjson.Unmarshal(content, &r); err != nil {
		return r, self.Misconfigured(remedy, "%s of the store is damaged: %s", RecordFile, err)
	}
	if r.Version != recordVersion {
		return r, self.Misconfigured("update this publisher",
			"%s of the store has version %d, but this publisher writes version %d", RecordFile, r.Version, recordVersion)
	}
	if r.Issuer != issuer {
		return r, foreign(RecordFile, r.Issuer, issuer)
	}
	seen := map[string]bool{}
	for _, e := range r.Keys {
		if seen[e.Key.KeyID] || e.Key.Key == nil ||
			e.Absence != nil && (e.Absence.Seconds < 0 || e.Absence.Seconds > maxSeconds) {
			return r, self.Misconfigured(remedy, "%s of the store is damaged at key %.99q", RecordFile, e.Key.KeyID)
		}
		seen[e.Key.KeyID] = true
	}
	if r.Lifetime != 0 && r.lifetime() < minLifetime || r.Lifetime > maxSeconds {
		return r, self.Misconfigured(remedy, "%s of the store is damaged: a token lifetime of %d seconds", RecordFile,
			r.Lifetime)
	}
	return r, nil
}

func (r record) index(id string) int {
	return slices.IndexFunc(r.Keys, func(e entry) bool { return e.Key.KeyID == id })
}

// adopt adds published keys that are missing in the record, such as keys of
// another tool.
func (r record) adopt(published keySet) record {
	r.Keys = slices.Clone(r.Keys)
	for _, key := range published {
		if r.index(key.KeyID) < 0 {
			r.Keys = append(r.Keys, entry{Key: key})
		}
	}
	slices.SortFunc(r.Keys, func(a, b entry) int { return cmp.Compare(a.Key.KeyID, b.Key.KeyID) })
	return r
}

func (r record) lifetime() time.Duration {
	return cmp.Or(time.Duration(r.Lifetime)*time.Second, defaultLifetime)
}

// look returns the record after a read of the API server's keys. A zero
// lifetime keeps the record's. While a key is being removed, the longest
// lifetime counts.
func (r record) look(shown keySet, now time.Time, lifetime time.Duration) record {
	if seconds := int64(lifetime / time.Second); seconds > r.Lifetime || seconds != 0 && len(r.leaving()) == 0 {
		r.Lifetime = seconds
	}
	now = now.UTC().Truncate(time.Second)
	var kept []entry
	for _, e := range r.adopt(shown).Keys {
		i := shown.index(e.Key.KeyID)
		switch {
		case e.Removed:
		case i >= 0:
			e = entry{Key: shown[i]} // the API server decides about an ID that named another key
		default:
			after := e.Absence.after(now)
			if after.total() >= r.lifetime() {
				continue
			}
			if e.Absence == nil || now.Sub(e.Absence.Until) < -maxGap || now.Sub(e.Absence.Until) >= minGap {
				e.Absence = &after
			}
		}
		kept = append(kept, e)
	}
	r.Keys = kept
	return r
}

// after counts the time since the last read, whichever publisher made it.
func (a *absence) after(now time.Time) absence {
	if a == nil {
		return absence{Until: now}
	}
	switch gap := now.Sub(a.Until); {
	case gap < -maxGap: // a clock is wrong, so the counted time may be wrong too
		return absence{Until: now}
	case gap > maxGap:
		return absence{Seconds: a.Seconds, Until: now}
	default: // a small negative gap is clock skew, and is never written
		return absence{Seconds: a.Seconds + int64(gap/time.Second), Until: now}
	}
}

func (r record) remove(id string) (record, error) {
	i := r.index(id)
	if i < 0 {
		return r, self.Misconfigured("look the ID up in the API server's key set, /"+KeysFile,
			"no key has the ID %.99q: it is neither published nor shown by the API server", id)
	}
	r.Keys = slices.Clone(r.Keys)
	r.Keys[i] = entry{Key: r.Keys[i].Key, Removed: true}
	return r, nil
}

// published returns the keys to publish, in their order. It excludes a removed
// key under any ID.
func (r record) published() keySet {
	set := keySet{}
	for _, e := range r.Keys {
		if !slices.ContainsFunc(r.Keys, func(other entry) bool { return other.Removed && other.Key.sameMaterial(e.Key) }) {
			set = append(set, e.Key)
		}
	}
	return set
}

// leaving returns the times at which the absent keys expire.
func (r record) leaving() map[string]time.Time {
	leaving := map[string]time.Time{}
	for _, e := range r.Keys {
		if e.Absence != nil {
			leaving[e.Key.KeyID] = e.Absence.Until.Add(r.lifetime() - e.Absence.total())
		}
	}
	return leaving
}
