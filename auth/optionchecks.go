package auth

import (
	"cmp"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// resolve fills in the defaults of the Settings and refuses missing, malformed
// and contradictory options. It uses no network.
func (o *Options) resolve() error {
	o.setPolicy(cmp.Or(o.Policy, strictest)) // an Option of a test may have set the field
	if err := o.resolveServiceAccount(); err != nil {
		return err
	}
	o.Subject = o.subject()
	_, requested := o.SubjectToken.(*TokenRequest) // of the API server, which knows the ServiceAccount
	o.TokenInHand, o.TokenRepeats, o.TokenIssued = o.SubjectToken != nil && !requested, requested, o.SubjectIssuer != nil
	o.OnBehalf = o.IsOwnIdentity() && *o.owner() != (cache.InvolvedObject{})
	if len(o.Annotations) > 0 && o.ServiceAccount == nil && o.SubjectServiceAccount == nil {
		return misconfigured("name a ServiceAccount, or leave the annotations out to act as the controller",
			"the caller's identity was given without a ServiceAccount").About("auth.WithAnnotations")
	}
	if err := o.checkProxy(); err != nil {
		return err
	}
	if err := o.resolveAddress(); err != nil {
		return err
	}
	for _, scope := range o.Scopes {
		if scope == "" {
			return misconfigured("leave it out", "a scope is empty")
		}
	}
	for _, audience := range o.Audiences {
		if err := o.Policy.checkAudience(audience); err != nil {
			return err
		}
	}
	if o.MinimumLifetime < 0 {
		return misconfigured("leave it out", "a credential cannot have a minimum lifetime of %s", o.MinimumLifetime)
	}
	if o.MinimumLifetime == 0 && o.Settings != nil && !o.renews {
		o.MinimumLifetime = o.Settings.MinimumLifetime
	}
	return checkLifetime(o.TokenLifetime)
}

func (o *Options) checkProxy() error {
	p := o.ProxyURL
	switch {
	case p == nil:
		return nil
	case o.HTTPClient != nil:
		return misconfigured("leave one out; a client brings its own proxy", "an HTTP client and a proxy exclude each other").
			About("auth.WithHTTPClient", "auth.WithProxyURL")
	case p.Host == "" || p.Scheme != "http" && p.Scheme != "https" && p.Scheme != "socks5":
		// The rest of a malformed URL may hold a password in an unexpected
		// place.
		return misconfigured("use http://host:port, https:// or socks5://",
			"the proxy URL of scheme %.20q and host %.100q is not one", p.Scheme, p.Host)
	}
	return o.Policy.checkProxy(o.owner(), p)
}

// resolveAddress makes the cluster's address canonical and remembers how it was
// written.
func (o *Options) resolveAddress() (err error) {
	if o.ClusterAddress != "" {
		if strings.HasPrefix(o.ClusterAddress, "https://") {
			o.ClusterAudience = o.ClusterAddress
		}
		o.ClusterAddress, err = provider.ParseClusterAddress(o.ClusterAddress)
	}
	return err
}

func (o *Options) resolveServiceAccount() error {
	if o.SubjectIssuer != nil {
		if err := o.checkSubjectIssuer(); err != nil {
			return err
		}
	}
	switch {
	case o.SubjectToken != nil || o.SubjectServiceAccount != nil:
		return o.checkSubject()
	case o.ServiceAccount != nil:
		return o.checkServiceAccount()
	}
	o.defaulted = o.Settings.defaultServiceAccount(o.Usage)
	if o.defaulted.name == "" {
		if o.Policy.RequireServiceAccount {
			return denied("name a ServiceAccount", "the controller does not lend its own identity to objects")
		}
		return nil
	}
	namespace := o.owner().Namespace
	if namespace == "" {
		return misconfigured("name the object",
			"the default ServiceAccount %q lies in the namespace of the object that uses it, which is unknown",
			o.defaulted.name).
			About("auth.WithOwner", "auth.WithCache")
	}
	o.ServiceAccount = &client.ObjectKey{Namespace: namespace, Name: o.defaulted.name}
	return o.checkServiceAccount()
}

func (o *Options) checkServiceAccount() error {
	sa := o.ServiceAccount
	switch {
	case sa.Name == "":
		return misconfigured("name a ServiceAccount, or leave the namespace out to act as the controller",
			"a ServiceAccount without a name was given, in namespace %.100q", sa.Namespace).About("auth.WithServiceAccount")
	case sa.Namespace == "":
		return misconfigured("pass its namespace", "the ServiceAccount %.300q was given without a namespace", sa.Name)
	case isNil(o.Client):
		return misconfigured("pass a client", "the Kubernetes client is nil").About("auth.WithServiceAccount",
			"auth.WithClient")
	}
	return o.checkNames(*sa)
}

func (o *Options) checkSubject() error {
	switch {
	case o.ServiceAccount != nil:
		return misconfigured("leave one out", "a ServiceAccount to request tokens of and a token in hand exclude each other").
			About("auth.WithServiceAccount", "auth.WithSubjectToken")
	case isNil(o.SubjectToken) || o.SubjectServiceAccount == nil:
		return misconfigured("pass a source of tokens", "the source of subject tokens is nil")
	case o.BoundObject != nil || o.TokenLifetime != 0:
		return misconfigured("leave them out", "a token in hand has its lifetime and bound object already").
			About("auth.WithTokenLifetime", "auth.WithBoundObject")
	}
	return o.checkNames(client.ObjectKeyFromObject(o.SubjectServiceAccount))
}

func (o *Options) checkNames(sa client.ObjectKey) error {
	if o.Settings != nil && !o.Settings.ObjectLevelWorkloadIdentity {
		return gateOff(o.defaulted)
	}
	if !validNamespace(sa.Namespace) {
		return misconfigured("correct the name", "the namespace %.100q is not a valid name", sa.Namespace)
	}
	if !validServiceAccountName(sa.Name) {
		return misconfigured("correct the name", "%.300q is not a valid name for a ServiceAccount", sa.Name)
	}
	return nil
}

func checkLifetime(d time.Duration) error {
	if d != 0 && (d < minTokenLifetime || d > maxTokenLifetime) {
		return misconfigured("use at least 10m", "a ServiceAccount token cannot have a lifetime of %s", d)
	}
	return nil
}

// validNamespace is a DNS label of RFC 1123. The validators of apimachinery use
// regular expressions, which cost every hit 0.5 µs.
func validNamespace(s string) bool { return validLabel(s) && len(s) <= 63 }

// validServiceAccountName is a DNS subdomain of RFC 1123, whose labels may be
// as long as the whole.
func validServiceAccountName(s string) bool {
	if len(s) > 253 {
		return false
	}
	if strings.IndexByte(s, '.') < 0 {
		return validLabel(s)
	}
	for label := range strings.SplitSeq(s, ".") {
		if !validLabel(label) {
			return false
		}
	}
	return true
}

func validLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c-'a' >= 26 && c-'0' >= 10 && c != '-' {
			return false
		}
	}
	return true
}
