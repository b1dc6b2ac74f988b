package agent

import "testing"

// Add-ons use the hub again as soon as the agent has another credential.
func TestHubSessionsTellOfChanges(t *testing.T) {
	var s hubSessions
	first := &hubSession{made: map[string][]byte{"a": []byte("1")}}
	_, replaced := s.get()
	s.set(nil)
	if replaced.Err() != nil {
		t.Error("nothing was replaced by nothing")
	}
	s.set(first)
	if replaced.Err() == nil {
		t.Error("no word of the first access")
	}
	current, replaced := s.get()
	s.set(&hubSession{made: map[string][]byte{"a": []byte("1")}})
	if current != first || replaced.Err() != nil {
		t.Error("an access that is made of the same replaces another one")
	}
	s.set(&hubSession{made: map[string][]byte{"a": []byte("2")}})
	if replaced.Err() == nil {
		t.Error("no word of the second access")
	}
	_, replaced = s.get()
	s.set(nil)
	if current, _ := s.get(); current != nil || replaced.Err() == nil {
		t.Error("no word of the lost access")
	}
}
