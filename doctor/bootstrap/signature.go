package bootstrap

import (
	"context"
	"strings"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
)

// signatureTimeout leaves time to read cluster-info once more.
const signatureTimeout = 20 * time.Second

func (e *examination) checkSignature(ctx context.Context) doctor.Finding {
	switch {
	case e.served == nil:
		return doctor.Skipped("cluster-info was not read.")
	case e.id == "":
		return doctor.Unclear(doctor.Do("Name the token, or its ID."), "There is no token whose signature could be examined.")
	}
	for attempt := range 2 {
		if f, missing := e.missingSignature(); missing {
			return f
		}
		if e.token.IsZero() {
			return doctor.Unclear(doctor.Do("Name the whole token, or a kubeconfig of an administrator."),
				"cluster-info is signed for the token, but only its secret tells whether the signature is right.")
		}
		if bootstrap.Verify([]byte(e.served[bootstrap.KubeConfigKey]), e.served[bootstrap.SignaturePrefix+e.id], e.token) == nil {
			return doctor.Passed("cluster-info is signed with the token.")
		}
		if attempt == 0 && !e.readAgain(ctx) {
			return doctor.Unclear(doctor.Do("Try again."), "The signature is wrong, and cluster-info could not be read once more.")
		}
	}
	return e.wrongSignature(ctx)
}

// readAgain reads cluster-info after a while, since its signature may lag behind a change.
func (e *examination) readAgain(ctx context.Context) bool {
	pause, cancel := context.WithTimeout(ctx, e.Pause)
	defer cancel()
	<-pause.Done()
	_, _, info, err := e.read(ctx)
	if err != nil || info == nil {
		return false
	}
	e.served = info.Data
	return true
}

// missingSignature judges a token that the signer has left out.
func (e *examination) missingSignature() (doctor.Finding, bool) {
	const maxSigners = 5
	jws, exists := e.served[bootstrap.SignaturePrefix+e.id]
	ids := signers(e.served)
	look := doctor.Do("Look at the token; if there is none, create a new one:", "kubectl get secret -n kube-system "+bootstrap.SecretNamePrefix+e.id,
		"kubeadm token create --print-join-command")
	var f doctor.Finding
	switch {
	case exists && jws != "":
		return f, false
	case exists:
		f = doctor.Failed("SignatureEmpty", look, "The signature for token %s is empty, because the token is no longer valid.", e.id)
	case len(ids) > 0:
		f = doctor.Failed("NotSignedForToken", look, "cluster-info is signed for other tokens, but not for %s.", e.id).
			Compare("signed for", strings.Join(ids[:min(maxSigners, len(ids))], ", "), "token", e.id)
	default:
		f = doctor.Failed("SignerNotRunning", doctor.Do("Run the signer; kube-controller-manager takes:", "--controllers=*,bootstrapsigner,tokencleaner"),
			"cluster-info is not signed at all.")
		f.Causes = []string{"the signer does not run: outside kubeadm it is off by default", "no token is valid and has the usage signing"}
		return f, true
	}
	f.Causes = []string{"the token has expired or was deleted", "the ID is mistyped, or of another cluster", "the token lacks the usage signing"}
	return f, true
}

// wrongSignature shows no signature of its own: it would be valid for content that an attacker has forged.
func (e *examination) wrongSignature(ctx context.Context) doctor.Finding {
	if e.Client != nil {
		if own, err := e.own(ctx); err == nil && own != e.served[bootstrap.KubeConfigKey] {
			return doctor.Failed("SignatureWrong", doctor.Do("Do not join. Compare server and CA of cluster-info with those that the administrator knows:",
				"kubectl get configmap -n kube-public cluster-info -o yaml"),
				"The administrator reads another cluster-info: an attacker is in between, or it is another cluster.")
		}
	}
	f := doctor.Failed("SignatureWrong", doctor.Do("Create a new token; if its signature is wrong too, run the signer of kube-controller-manager:",
		"kubeadm token create --print-join-command", "--controllers=*,bootstrapsigner,tokencleaner"),
		"The signature of cluster-info is wrong for the token, also when read again.")
	if e.stored == nil {
		f.Causes = append(f.Causes, "the secret half of the token is mistyped, or of another token with this ID")
	}
	f.Causes = append(f.Causes, "cluster-info was edited, and the signer does not run")
	if !e.isVerified {
		f.Causes = append(f.Causes, "an attacker in between has changed cluster-info: do not join unless the others are excluded")
	}
	return f
}
