package registration

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/ocm"
)

// credential is one of the agent's kubeconfigs, read as the agent reads it: no
// files, no programs, no unverified TLS.
type credential struct {
	hub         *kubeconfig.Hub
	certificate *x509.Certificate // nil: a token, or a program
	program     string            // of the kubeconfig, which the doctor never runs
	config      *rest.Config      // nil: a program, or no user
}

// openCredential reads a Secret. Its errors never repeat a credential.
func openCredential(data map[string][]byte, bootstrap bool) (*credential, error) {
	parsed, err := kubeconfig.Parse(data["kubeconfig"])
	if err != nil {
		return nil, err
	}
	c := &credential{}
	users := parsed.AuthInfos
	parsed.AuthInfos, parsed.Contexts, parsed.CurrentContext = nil, nil, ""
	if c.hub, err = kubeconfig.HubOf(parsed); err != nil || len(users) == 0 {
		if err == nil && !bootstrap {
			err = errors.New("its kubeconfig holds no user")
		}
		return c, err
	}
	user := users[0].AuthInfo
	if user.Exec != nil && !bootstrap {
		c.program = user.Exec.Command
		return c, nil
	}
	files := data
	if bootstrap {
		files = nil
	}
	if user, err = kubeconfig.Inline(user, files); err != nil {
		return c, err
	}
	if block, _ := pem.Decode(user.ClientCertificateData); block != nil {
		c.certificate, _ = x509.ParseCertificate(block.Bytes) // TLSConfigFor reports it
	}
	c.config = c.hub.Config(user)
	c.config.UserAgent = "wid"
	if _, err = rest.TLSConfigFor(c.config); err != nil {
		return c, errors.New("the certificate and the key do not belong together, or are no PEM")
	}
	return c, nil
}

// describe names the hub's address and CA before the validity of the
// certificate, because a wrong one of them explains more.
func (c *credential) describe() string {
	ca := "the system's CAs"
	if block, _ := pem.Decode(c.hub.Cluster.CertificateAuthorityData); block != nil {
		hash := sha256.Sum256(block.Bytes)
		ca = fmt.Sprintf("CA sha256:%x…", hash[:4])
	}
	text := fmt.Sprintf("%.200s, %s", c.hub.Cluster.Server, ca)
	if c.certificate != nil {
		text += fmt.Sprintf(", valid from %s to %s for %.200q", kube.Stamp(c.certificate.NotBefore),
			kube.Stamp(c.certificate.NotAfter), c.certificate.Subject.CommonName)
	}
	return text
}

// secrets are the tokens of both Secrets, which a hostile hub may repeat.
func (e *examination) secrets() (all []string) {
	for _, data := range []map[string][]byte{e.own.data, e.boot.data} {
		all = append(all, string(data["token"]))
		if parsed, err := kubeconfig.Parse(data["kubeconfig"]); err == nil {
			for _, user := range parsed.AuthInfos {
				all = append(all, user.AuthInfo.Token, user.AuthInfo.Password)
			}
		}
	}
	return slices.DeleteFunc(all, func(secret string) bool { return secret == "" })
}

// answer is the hub's answer to a credential.
type answer struct {
	err  error
	user string    // as the hub knows it
	uid  types.UID // of the ManagedCluster that it shows
}

// eachTry bounds an answer, so that one address that hangs leaves time for the
// other.
const eachTry = 4 * time.Second

// try reads the ManagedCluster as the agent does. A hub that refuses names the
// user that it has seen.
func (e *examination) try(ctx context.Context, c *credential) answer {
	ctx, cancel := context.WithTimeout(ctx, eachTry)
	defer cancel()
	httpClient, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return answer{err: err}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(ocm.GroupVersion.WithKind("ManagedCluster"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	as, err := client.New(c.config,
		client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper, HTTPClient: transport.Guard(httpClient)})
	if err != nil {
		return answer{err: err}
	}
	cluster := &ocm.ManagedCluster{}
	said := answer{err: kube.Get(ctx, as, ocm.GroupVersion.WithKind("ManagedCluster"),
		client.ObjectKey{Name: e.ClusterName}, cluster)}
	said.uid = cluster.UID
	if isAnswer(said.err) && !apierrors.IsUnauthorized(said.err) {
		var self authenticationv1.SelfSubjectReview
		if as.Create(ctx, &self) == nil {
			said.user = self.Status.UserInfo.Username
		}
	}
	return said
}

// isAnswer reports whether an API server has answered. An address that cannot
// be reached from this machine says nothing of the agent.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && !kube.Absent(err)
}

// judge makes a finding of an answer. refusal is the class of an unsuccessful
// answer.
func (e *examination) judge(c *credential, said answer, refusal string, remedy doctor.Remedy) doctor.Finding {
	server := fmt.Sprintf("%.200s", c.hub.Cluster.Server)
	as := ""
	if said.user != "" {
		as = fmt.Sprintf(" to user %.200q", said.user)
	}
	var status apierrors.APIStatus
	switch {
	case said.err == nil && e.cluster != nil && said.uid != e.cluster.UID:
		return doctor.Failed("AnotherHub", remedy,
			"%s shows another ManagedCluster %s than the hub of the kubeconfig: the agent is at another hub.", server,
			e.ClusterName).
			With(time.Now(), time.Time{})
	case said.err == nil:
		return doctor.Passed("%s takes it.", server).With(time.Now(), time.Now())
	case doctor.IsUntrusted(said.err):
		return doctor.Failed("CertificateNotTrusted", remedy, "%s: %s", server, kubeerror.Message(said.err)).With(time.Now(),
			time.Time{})
	case !isAnswer(said.err):
		return doctor.Unclear(e.readLog(), "%s cannot be reached from this machine, which says nothing of the agent: %s",
			server, kubeerror.Message(said.err))
	}
	errors.As(said.err, &status)
	return doctor.Failed(refusal, remedy, "%s answers %d%s: %s", server, status.Status().Code, as,
		kubeerror.Message(said.err)).With(time.Now(), time.Time{})
}

// use is how the agent's own credential fared.
type use struct {
	*credential
	answer

	unusable error // of the Secret
}

// taken reports whether the hub has taken the credential, just now.
func (u *use) taken() bool { return u.unusable == nil && u.config != nil && u.err == nil }

func (e *examination) useOwn(ctx context.Context) *use {
	if e.used == nil {
		e.used = &use{}
		if e.used.credential, e.used.unusable = openCredential(e.own.data, false); e.used.unusable == nil &&
			e.used.config != nil {
			e.used.answer = e.try(ctx, e.used.credential)
		}
	}
	return e.used
}

// tryCredential uses the agent's own credential. ✓ for the whole chain needs
// it.
func (e *examination) tryCredential(ctx context.Context) doctor.Finding {
	if len(e.own.data["kubeconfig"]) == 0 {
		return unread("the agent has none yet")
	}
	u := e.useOwn(ctx)
	switch {
	case u.unusable != nil:
		return unread("it cannot be used: %v", u.unusable)
	case u.config == nil:
		return unread("it comes from the program %.100q, which the doctor does not run", u.program)
	case apierrors.IsUnauthorized(u.err):
		return e.judge(u.credential, u.answer, "HubKubeConfigUnauthorized", e.join())
	}
	return e.judge(u.credential, u.answer, "HubKubeConfigForbidden",
		e.atHub("look at the rights of the cluster and at the hub's program:",
			"kubectl get clusterrole,clusterrolebinding open-cluster-management:managedcluster:"+e.name()+" --ignore-not-found",
			"kubectl get pods -n "+hubNamespace))
}

// showBootstrap tries the bootstrap credential, unless the agent has one of its
// own that the hub takes.
func (e *examination) showBootstrap(ctx context.Context) doctor.Finding {
	if e.boot.err != nil {
		return unread("Secret %s: %s", agent.DefaultBootstrapSecret, kubeerror.Message(e.boot.err))
	}
	f := doctor.Skipped("not needed, since the agent has a credential of its own").With(time.Time{}, time.Now())
	switch u := e.useOwn(ctx); {
	case u.isEarly():
		f = unread("the agent falls back to it as long as its own certificate is not valid yet")
	case !u.isKept():
		f = e.tryBootstrap(ctx)
	}
	return f.With(f.Since, f.Worked, e.agentEvents(ctx, "bootstrap")...)
}

func (e *examination) tryBootstrap(ctx context.Context) doctor.Finding {
	const name, class = agent.DefaultBootstrapSecret, "BootstrapSecretError"
	if e.boot.data == nil {
		return doctor.Failed("BootstrapSecretMissing", e.join(), "There is no Secret %s in namespace %s.", name,
			e.Namespace)
	}
	c, err := openCredential(e.boot.data, true)
	switch {
	case err != nil:
		return doctor.Failed(class, e.join(), "The Secret %s: %v", name, err).With(time.Now(), time.Time{})
	case c.config == nil:
		return doctor.Failed(class, e.join(), "The Secret %s holds no credential.", name).With(time.Now(), time.Time{})
	}
	said := e.try(ctx, c)
	if apierrors.IsNotFound(said.err) && !kube.Absent(said.err) && e.cluster == nil {
		said.err = nil // the hub lets it look
	}
	return e.judge(c, said, "BootstrapSecretUnauthorized", e.join())
}

// isEarly reports whether the certificate is not valid yet. The hub answers 401
// until then.
func (u *use) isEarly() bool {
	return u.unusable == nil && u.certificate != nil && time.Now().Before(u.certificate.NotBefore)
}

// isKept reports whether the agent keeps using its own credential: a program's,
// or one that the hub accepts, or one that the hub knows but has not accepted.
func (u *use) isKept() bool {
	return u.unusable == nil && (u.config == nil || u.err == nil || apierrors.IsForbidden(u.err))
}
