package doctor

import (
	"slices"
	"strings"
)

// reconcile withdraws what the real exchange has refuted: the cloud has verified the token, so it can see the issuer and its
// keys, whatever this machine's network allows. If the exchange worked, the cloud's rules admit the token too.
func reconcile(r *Report) {
	exchange := r.Of("exchange")
	if exchange == nil {
		return
	}
	var refuted []string
	switch {
	case exchange.Result == Pass:
		refuted = []string{"discovery", "keys", "issuer-tls", "trust-anchor", "trust-rule"}
	case slices.Contains([]string{"A1", "A11", "G8", "G10", "G11", "G12", "G13"}, exchange.Class):
		refuted = []string{"discovery", "keys", "issuer-tls"} // such answers come after the signature was verified
	}
	if exchange.Result == Pass {
		withdrawDoubts(r)
		withdrawBlindness(r)
		withdrawTentative(r)
	}
	for _, id := range refuted {
		if f := r.Of(id); f != nil && f.Result == Fail {
			f.Result = Warn
			f.Message += "; but the exchange shows that the cloud sees it otherwise"
			if strings.HasPrefix(id, "trust-") { // what works needs no other policy
				f.shared, f.Remedy = "", "read it again before anything is changed: what was read is old, or a change is yet to take effect"
			}
		}
	}
}

// withdrawDoubts is for what might have stood in the way of an exchange that worked.
func withdrawDoubts(r *Report) {
	for _, id := range []string{"token-format", "issuer", "issuer-tls"} {
		if f := r.Of(id); f != nil && f.Result == Warn {
			f.withdraw(Pass, "; the exchange worked nevertheless")
		}
	}
}

// withdrawBlindness is for what could not be seen from here, but was by the cloud: it has verified the token and applied its
// rules.
func withdrawBlindness(r *Report) {
	for _, id := range []string{"discovery", "keys", "issuer-tls"} {
		if f := r.Of(id); f != nil && f.Result == Unknown {
			f.withdraw(Skip, "; the exchange worked, so the cloud can")
		}
	}
	for _, id := range []string{"trust-anchor", "trust-rule"} {
		if f := r.Of(id); f != nil && f.Result == Unknown && f.unasked {
			f.withdraw(Skip, ", as nobody was given to read it; the exchange worked, so it admits the token")
		}
	}
	if f := r.Of("trust-rule"); f != nil && f.Result == Fail && f.Class == "G10" {
		f.withdraw(Skip, "; the exchange worked, so the role is granted elsewhere: on the project, perhaps")
	}
	review, issuer := r.Of("token-review"), r.Of("cluster-issuer")
	if review != nil && review.Result == Pass && issuer != nil && issuer.Result == Unknown && issuer.unasked {
		issuer.withdraw(Skip, "; the cluster accepts the token")
	}
}

// withdrawTentative is for what the exchange does not depend on. What else this machine does with its clock may.
func withdrawTentative(r *Report) {
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Number > exchangeNumber && f.Result == Fail }) {
		return
	}
	for i := range r.Findings {
		switch f := &r.Findings[i]; {
		case !f.tentative || f.Result != Fail:
		case f.ID == "audience":
			f.withdraw(Pass, "; but the exchange works, so the provider allows it")
		default:
			f.Result = Warn
			f.Message += "; the exchange works all the same"
		}
	}
}

const exchangeNumber = 21

// withdraw leaves nothing that looks wrong.
func (f *Finding) withdraw(to Result, why string) {
	f.Result, f.Class, f.Remedy, f.shared = to, "", "", ""
	f.Message += why
	for i := range f.Fields {
		f.Fields[i].Differs, f.Fields[i].Expected = false, ""
	}
}
