package csr

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrUnsupported matches the errors of Probe for hubs that do not sign client
// certificates.
var ErrUnsupported = errors.New("the hub does not sign client certificates")

const (
	probeInterval = 250 * time.Millisecond
	probeTimeout  = 30 * time.Second
	probeLifetime = 600 // seconds, the minimum of the API server
)

// Probe tests whether a hub can register clusters by certificate. It creates a
// CertificateSigningRequest, approves it, waits up to 30 s for a certificate,
// and deletes the request. The certificate's user has no rights, and Probe
// drops its key. The error matches [ErrUnsupported] if the hub does not sign in
// time, as on Amazon EKS. Such a hub needs another auth type. The client needs
// the verbs create, get and delete on CertificateSigningRequests, and the
// rights to approve requests of the signer kubernetes.io/kube-apiserver-client.
func Probe(ctx context.Context, c client.Client) (err error) {
	csr, err := probeRequest()
	if err != nil {
		return fmt.Errorf("make the probe: %w", err)
	}
	if err := c.Create(ctx, csr); err != nil {
		return fmt.Errorf("create CertificateSigningRequest: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		if deleteErr := client.IgnoreNotFound(c.Delete(ctx, csr)); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("delete CertificateSigningRequest %q, which the probe left: %w", csr.Name,
				deleteErr))
		}
	}()
	if err := setDecision(ctx, c, csr, certificatesv1.CertificateApproved,
		"probe of whether the hub signs client certificates"); err != nil {
		return err
	}
	return awaitSignature(ctx, c, csr)
}

func awaitSignature(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest) error {
	key := client.ObjectKeyFromObject(csr)
	var getErr error // a hub that does not answer may still sign
	err := wait.PollUntilContextTimeout(ctx, probeInterval, probeTimeout, true, func(ctx context.Context) (bool, error) {
		if getErr = c.Get(ctx, key, csr); getErr != nil {
			return false, fmt.Errorf("get CertificateSigningRequest %q: %w", key.Name, getErr)
		}
		if no := decision(csr, certificatesv1.CertificateFailed, certificatesv1.CertificateDenied); no != nil {
			return false, fmt.Errorf("%w: the request is %s, reason %.100q: %.300q", ErrUnsupported, no.Type, no.Reason,
				no.Message)
		}
		return len(csr.Status.Certificate) > 0, nil
	})
	if getErr == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf(
			"%w: an approved request was not signed in time; run kube-controller-manager with the controller csrsigning, or use another auth type", ErrUnsupported)
	}
	return err
}

func probeRequest() (*certificatesv1.CertificateSigningRequest, error) {
	content, err := newKey()
	if err != nil {
		return nil, err
	}
	probe := target{signer: certificatesv1.KubeAPIServerClientSignerName,
		subject: pkix.Name{CommonName: "workloadid-probe"}}
	csr, err := probe.request("", parseKey(content))
	if err != nil {
		return nil, err
	}
	lifetime := int32(probeLifetime)
	csr.ObjectMeta = metav1.ObjectMeta{GenerateName: "workloadid-probe-"}
	csr.Spec.ExpirationSeconds = &lifetime
	return csr, nil
}
