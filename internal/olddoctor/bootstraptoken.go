package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

const newToken = "kubeadm token create --print-join-command, or: wid bootstrap create"

// checkSecret comes before the signature: it knows the cause of which a missing signature is a symptom.
func (b *bootstrapping) checkSecret(ctx context.Context) Finding {
	switch {
	case b.id == "":
		return skip("no token was named")
	case b.Client == nil:
		return unknown("the token's Secret was not looked at", "pass a kubeconfig of an administrator of that cluster")
	}
	name := bootstrap.SecretNamePrefix + b.id
	secret := &corev1.Secret{}
	err := readObject(ctx, b.Client, "v1", "Secret", client.ObjectKey{Namespace: bootstrap.SecretNamespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err) && b.elsewhere(ctx):
		return b.otherCluster()
	case apierrors.IsNotFound(err):
		return fail("B23", newToken, "there is no token with this ID: it was deleted, it has expired, or the ID or the "+
			"kubeconfig is another cluster's").
			with(differs("Secret", "not found", bootstrap.SecretNamespace+"/"+name)).with(b.addresses()...)
	case err != nil:
		return unread("the token's Secret", err, "grant get on the Secret "+name+" in namespace "+bootstrap.SecretNamespace)
	}
	return b.judgeSecret(ctx, secret)
}

func (b *bootstrapping) judgeSecret(ctx context.Context, secret *corev1.Secret) Finding {
	c, err := bootstrap.ParseSecret(secret)
	if err == nil {
		knownTo(ctx).add(c.Token.Reveal())
	}
	switch {
	case secret.DeletionTimestamp != nil:
		return fail("B31", newToken, "the token is being deleted").
			with(differs("deletionTimestamp", stamp(secret.DeletionTimestamp.Time), "none"))
	case err != nil:
		return fail("B24", "kubectl delete secret -n kube-system "+bootstrap.SecretNamePrefix+b.id+"\n"+newToken,
			"Kubernetes ignores the token: %s", oneLine(err.Error()))
	case b.whole && !c.Token.Equal(b.token):
		return fail("B29", "pass the token as it was created, or create a new one: "+newToken,
			"the Secret holds another secret half than the token that was given").
			with(Field{Name: "secret half", Observed: "another one", Expected: "that of the Secret", Differs: true})
	case c.MalformedExpiration:
		return fail("B26", newToken, "the token's expiration cannot be parsed, so it counts as expired").
			with(differs("expiration", "malformed", "RFC 3339, such as "+stamp(b.Now().Add(24*time.Hour))))
	case c.Expired(b.time()):
		return fail("B25", newToken, "the token has expired").
			with(differs("expiration", stamp(c.Expires), "after "+stamp(b.time())))
	case !c.Allows(bootstrap.UsageSigning):
		return fail("B27", newToken, "the token may not sign cluster-info").
			with(differs("usages", usagesOf(c), bootstrap.UsageSigning))
	}
	b.token, b.stored = c.Token, b.whole
	return b.judgeAuthentication(c, secret)
}

// judgeAuthentication doubts tokens that can discover but not log in: some are meant for discovery alone.
func (b *bootstrapping) judgeAuthentication(c *bootstrap.TokenConfig, secret *corev1.Secret) Finding {
	switch {
	case !c.Allows(bootstrap.UsageAuthentication):
		return Finding{Result: Warn, Class: "B28", Remedy: newToken,
			Message: "the token may sign, but not log in: the TLS bootstrap that follows gets 401"}.
			with(differs("usages", usagesOf(c), bootstrap.UsageAuthentication))
	case c.MalformedGroups:
		return Finding{Result: Warn, Class: "B32", Remedy: newToken,
			Message: "the token names a group that no token can give, so it logs nobody in: the TLS bootstrap that follows gets 401"}.
			with(differs("auth-extra-groups", badGroup(secret), "system:bootstrappers:…"))
	case c.Expires.IsZero():
		return pass("the token signs and logs in, and never expires").with(same("usages", usagesOf(c)))
	}
	return pass("the token signs and logs in, until %s", stamp(c.Expires)).
		with(same("expiration", stamp(c.Expires)), same("usages", usagesOf(c)))
}

func usagesOf(c *bootstrap.TokenConfig) string { return strings.Join(c.Usages, ", ") }

// signers are the IDs of the tokens that cluster-info is signed with.
func signers(data map[string]string) (ids []string) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if id, ok := strings.CutPrefix(key, bootstrap.SignaturePrefix); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (b *bootstrapping) checkSignature(ctx context.Context) Finding {
	switch {
	case b.served == nil:
		return skip("cluster-info was not read")
	case b.id == "":
		return unknown("no token was named", "pass the token, or its ID alone")
	}
	if f, missing := b.missingSignature(); missing {
		return f
	}
	if b.token.IsZero() {
		return unknown("there is a signature for the token, but only the token's secret tells whether it fits",
			"pass the whole token, or a kubeconfig of an administrator")
	}
	if b.verify() {
		return pass("the signature fits the token")
	}
	if !sleep(ctx, b.Pause) {
		return unknown("the signature does not fit, and there was no time to read it once more", "try again")
	}
	_, _, data, err := b.read(ctx)
	if err != nil || data == nil {
		return unknown("the signature does not fit, and could not be read once more", "try again")
	}
	b.served = data
	if f, missing := b.missingSignature(); missing {
		return f
	}
	if b.verify() {
		return pass("the signature fits the token; it had lagged behind a change of cluster-info")
	}
	return b.wrongSignature(ctx)
}

func (b *bootstrapping) verify() bool {
	return bootstrap.Verify([]byte(b.served[bootstrap.KubeConfigKey]), b.served[bootstrap.SignaturePrefix+b.id], b.token) == nil
}

func (b *bootstrapping) missingSignature() (Finding, bool) {
	jws, there := b.served[bootstrap.SignaturePrefix+b.id]
	ids := signers(b.served)
	causes := []string{"the token has expired or was deleted", "the ID is another cluster's, or mistyped",
		"the token lacks the usage signing",
		"the signer has lost an update: wait a minute"}
	look := "kubectl get secret -n kube-system " + bootstrap.SecretNamePrefix + b.id + ", or create a new one: " + newToken
	const most = 10
	switch {
	case there && jws == "":
		f := fail("B14", look, "the signature for token %s is empty: the token is not valid any more", b.id)
		f.Causes = causes
		return f.with(differs(bootstrap.SignaturePrefix+b.id, "empty", "<header>..<signature>")), true
	case !there && len(ids) > 0:
		f := fail("B12", look, "cluster-info is signed for other tokens, but not for %s", b.id)
		f.Causes = causes
		return f.with(differs("signed for", strings.Join(ids[:min(most, len(ids))], ", "), b.id)), true
	case !there:
		f := fail("B13", "kubectl get secrets -n kube-system --field-selector type=bootstrap.kubernetes.io/token\n"+
			"if there are some: kube-controller-manager needs --controllers=*,bootstrapsigner,tokencleaner; else: "+newToken,
			"cluster-info is not signed at all")
		f.Causes = []string{"the signer does not run: bootstrapsigner of kube-controller-manager is off by default outside " +
			"kubeadm",
			"no token is valid and has the usage signing"}
		return f.with(differs("signed for", "none", b.id)), true
	}
	return Finding{}, false
}

// isGood says that the Secret holds the token that is meant, so that a signature that does not fit is not the token's fault.
func (b *bootstrapping) isGood() bool { return b.stored || !b.whole && !b.token.IsZero() }

const (
	runSigner = "see that the signer runs: kubectl get pods -n kube-system -l component=kube-controller-manager -o yaml | grep -e --controllers\n" +
		"it takes --controllers=*,bootstrapsigner,tokencleaner"
	inBetween = "somebody is in between, and shows another cluster-info than the cluster's"
)

// haveSigned is what makes a signature fit where nobody is in between.
func (b *bootstrapping) haveSigned() string {
	if b.isGood() {
		return runSigner + "; until it runs, no other token helps either"
	}
	return "create a new token and try with that: " + newToken + "\nif that does not mend it, " + runSigner
}

// wrongSignature shows no signature that was computed: for content that somebody forged it would be a valid one.
func (b *bootstrapping) wrongSignature(ctx context.Context) Finding {
	what := "the signature does not fit the token and cluster-info, twice in a row"
	if b.isGood() {
		what = "the token is good, but the signature is not that of this cluster-info, twice in a row"
	}
	f := fail("B15", b.haveSigned()+"\nif the signer runs and this stays, do not join: somebody is in between", "%s", what)
	if !b.isGood() {
		f.Causes = append(f.Causes, "the secret half of the token is wrong: mistyped, or of another token with this ID")
	}
	f.Causes = append(f.Causes, "cluster-info was edited, and the signer does not run", inBetween)
	f = f.with(differs(bootstrap.SignaturePrefix+b.id, "does not verify", "the HMAC of cluster-info with the token's secret"))
	if b.Client == nil {
		return f
	}
	own := &corev1.ConfigMap{}
	err := readObject(ctx, b.Client, "v1", "ConfigMap",
		client.ObjectKey{Namespace: bootstrap.ConfigMapNamespace, Name: bootstrap.ConfigMapName}, own)
	switch {
	case err != nil:
	case own.Data[bootstrap.KubeConfigKey] != b.served[bootstrap.KubeConfigKey]:
		f.Message = "the signature does not fit, and the administrator reads another cluster-info than strangers get here: " +
			"somebody is in between, or the kubeconfig is of another cluster"
		f.Remedy = "do not join; compare server and certificate authority of cluster-info with what the administrator knows"
		f.Causes, f.Fields = nil, []Field{{Name: "cluster-info", Observed: "another one than the administrator's", Expected: "the same", Differs: true}}
	default: // nobody has changed it on the way
		f.Causes, f.Remedy = f.Causes[:len(f.Causes)-1], b.haveSigned()
	}
	return f
}

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
