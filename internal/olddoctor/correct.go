package doctor

import "strings"

// widening splits a remedy in two. The correction of what the user wrote comes first. The change that has the cloud trust more,
// which is the remedy so far, follows only with Config.ShowPolicy. Conditions never show it.
func (e *examination) widening(f Finding, correction string) Finding {
	change := f.Remedy
	f.Remedy, f.shared = correction, correction
	switch {
	case change == "":
	case e.ShowPolicy:
		f.Remedy += "\nonly if all of that is right, change what is trusted:\n" + change
	default:
		f.Remedy += "\nwid doctor --show-policy also prints the change to what is trusted"
	}
	return f
}

// correctFirst is widening for a cloud that refuses the token.
func (e *examination) correctFirst(f Finding) Finding {
	if f.Result != Fail {
		return f
	}
	if e.token.claims != nil && e.lacksAudience() {
		f.Remedy = "" // the cloud is not what is wrong
		return e.widening(f, wrongAudience)
	}
	return e.widening(f, firstOf(f.nearly, e.correction(f.Class)))
}

// changesTrust reports whether the remedy of an error class changes what a cloud trusts.
func changesTrust(class string) bool {
	switch class {
	case "A1", "A2", "A4", "A7", "Z1", "Z2", "Z3", "Z4", "Z5", "Z6", "G3", "G4", "G5", "G6", "G8", "G10", "G14":
		return true
	}
	return false
}

// correctNames is the correction where no more is known than the error.
const correctNames = "correct the identity, the audience or the cluster, if another one is meant"

// correction names what the user may have written wrongly. The likeliest mistake comes first.
func (e *examination) correction(class string) string {
	const cluster = "use the right kube context, or a token of the right cluster, if another cluster is meant"
	identity := correctNames
	if sa := e.inCluster(); sa.Name != "" {
		identity = "correct the annotation if another identity is meant:\n" + e.annotating(sa, e.identityKey(class)+"=VALUE")
	}
	switch class {
	case "A2", "A7", "Z2", "G4", "G5", "G6":
		return cluster + "\n" + identity
	case "A4", "Z3", "G3":
		return strings.TrimPrefix(e.correctAudience()+"\n"+identity, "\n")
	}
	return identity + "\n" + cluster
}

// identityKey is the annotation that names the identity that the cloud refuses.
func (e *examination) identityKey(class string) string {
	if class == "G10" || class == "G14" {
		return emailAnnotation
	}
	return firstOf(e.cloud.required, poolProviderAnnotation)
}

// correctAudience is empty if the user chose no audience.
func (e *examination) correctAudience() string {
	sa, key := e.inCluster(), e.cloud.audienceKey
	_, annotated := sa.Annotations[key]
	switch {
	case annotated:
		return "remove the annotation, and " + e.cloud.audience + " is asked for:\n" + e.annotating(sa, key+"-")
	case len(e.resolved().Audiences) > 0:
		return "correct auth.WithAudiences, or leave it out"
	}
	return ""
}

// nearAudience returns the known audience of the provider that an audience is nearly. It is empty for a known audience, and for
// one that differs in more than a typo.
func (e *examination) nearAudience(audience string) string {
	known := e.cloud.audiences
	if provider := e.serviceAccount().Annotations[poolProviderAnnotation]; provider != "" && e.Provider.GetName() == "gcp" {
		known = []string{"//iam.googleapis.com/" + provider, "https://iam.googleapis.com/" + provider}
	}
	near := ""
	for _, k := range known {
		if audience == k {
			return ""
		}
		if alike(audience, k) {
			near = firstOf(near, k)
		}
	}
	return near
}

// misspeltAudience finds a typo in the audience that was asked for. The exchange is tried all the same.
func (e *examination) misspeltAudience(want []string) (Finding, bool) {
	if len(want) != 1 || e.nearAudience(want[0]) == "" {
		return Finding{}, false
	}
	near := e.nearAudience(want[0])
	f := fail(e.cloud.wrongAudience, e.correctAudience(), "the audience that is asked for is nearly %s", near).
		with(differs("aud", want[0], near))
	f.tentative = true
	return f, true
}
