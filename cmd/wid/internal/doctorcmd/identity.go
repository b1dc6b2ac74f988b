package doctorcmd

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	trustaws "github.com/workloadid/workloadid/cmd/wid/internal/doctor/trust/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/issuercmd"
	"github.com/workloadid/workloadid/internal/apiserver"
)

// DoctorFlags are the flags of wid doctor that the other commands do not have.
type DoctorFlags struct {
	examiner

	identitydoctor.Config

	id        *credentials.Identity
	trustLive bool
	outside   issuercmd.Outside
}

// NewDoctor returns wid doctor.
func NewDoctor(a *credentials.App) *cobra.Command { return DoctorCommand(a, &DoctorFlags{}) }

// DoctorCommand is NewDoctor with flags that tests have set.
func DoctorCommand(a *credentials.App, d *DoctorFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why a ServiceAccount gets no credentials",
		Long: "Find out why a ServiceAccount gets no credentials: what is wrong, on which cluster, and what to do. It tries the\n" +
			"exchange itself and explains its failure. Tokens are never shown. From a workstation it uses the kubeconfig. In a pod,\n" +
			"without --service-account, it examines the pod's own environment.",
		Example: "  wid doctor --service-account tenant-a/app --region eu-central-1\n" +
			"  wid doctor --pod tenant-a/app-5f7c\n" +
			"  wid doctor --service-account tenant-a/app --trust-live -o json\n" +
			"  kubectl exec app-5f7c -- wid doctor --provider aws\n" +
			"  wid doctor --token-file token --annotation eks.amazonaws.com/role-arn=$ROLE --region eu-central-1",
	}
	d.id = a.NewIdentity(cmd)
	d.id.Examines, d.clients, d.reword = true, &d.id.Clients, d.inTermsOfFlags
	d.addTo(cmd)
	d.addPolicyTo(cmd)
	d.addTargetsTo(cmd)
	d.outside.AddTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d.id.Stderr, d.stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
		if err := d.id.Complete(); err != nil {
			return d.asUsage(err)
		}
		d.timeout = d.id.Timeout
		return d.run(cmd, d.examine)
	}
	cmd.AddCommand(newDoctorRegistration(), newDoctorPodIdentity())
	return cmd
}

func (d *DoctorFlags) addTargetsTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.id.Pod, "pod", "",
		"the pod that gets no credentials, namespace/name; its ServiceAccount if none is named")
	f.BoolVar(&d.trustLive, "trust-live", false, "ask AWS what it trusts, with your own login")
}

// inTermsOfFlags names the flags of a remedy, and makes commands ask the
// examined cluster.
func (d *DoctorFlags) inTermsOfFlags(f *doctor.Finding) {
	text, ok := strings.CutSuffix(f.Remedy.Text, ".")
	if flags := d.id.FlagsOf(f.Remedy.Option); ok && flags != "" {
		f.Remedy.Text = text + " (" + flags + ")."
	}
	f.Rewrite(same, d.id.KubeFile().Kubectl)
}

func (d *DoctorFlags) examine(ctx context.Context) (*doctor.Report, error) {
	d.Examination = d.of("")
	if err := d.names(); err != nil {
		return nil, err
	}
	if err := d.connect(); err != nil {
		return nil, err
	}
	if report, err := d.detect(ctx); report != nil || err != nil {
		return report, err
	}
	if err := d.provider(); err != nil {
		return nil, err
	}
	if err := d.sources(); err != nil {
		return nil, err
	}
	return identitydoctor.Run(ctx, d.Config), nil
}

func (d *DoctorFlags) names() (err error) {
	if d.ServiceAccount, err = credentials.ParseKey("service-account", d.id.ServiceAccount); err != nil {
		return err
	}
	if d.Pod, err = credentials.ParseKey("pod", d.id.Pod); err != nil {
		return err
	}
	if len(d.id.Annotations) > 0 {
		d.Annotations, err = credentials.Pairs("annotation", d.id.Annotations)
	}
	d.InPod = os.Getenv("KUBERNETES_SERVICE_HOST") != "" && d.ServiceAccount.Name == "" && !d.id.HasToken() &&
		!d.id.NamesCluster()
	return err
}

// connect finds the cluster of the ServiceAccount: this one in a pod, and for
// callers that hold a token only one that is named.
func (d *DoctorFlags) connect() (err error) {
	switch {
	case d.id.HasToken() && !d.id.NamesCluster():
		return nil
	case d.InPod:
		if d.RESTConfig, err = d.id.PodConfig(); err != nil {
			return nil //nolint:nilerr // the checks that need it say so
		}
	case d.ServiceAccount.Name == "" && d.id.Pod == "" && !d.id.HasToken():
		return nil
	default:
		if d.RESTConfig, err = d.id.ClusterConfig(); err != nil {
			return err
		}
		if d.showPolicy { // the commands name the issuer of the cluster's tokens
			if err := apiserver.CheckVerified(d.RESTConfig); err != nil {
				return cli.Problem(auth.ErrMisconfigured, "", "%v", err)
			}
		}
		if !d.id.InCluster {
			d.ClusterName = d.id.KubeFile().Current()
		}
	}
	d.Examination.Cluster = describe(d.ClusterName, d.RESTConfig)
	d.Client, err = newDoctorClient(d.RESTConfig)
	return err
}

func (d *DoctorFlags) provider() (err error) {
	if d.Provider, err = d.id.Named(); err != nil {
		return err
	}
	opts, err := d.id.Options()
	// The tenant's own choice of an audience is examined, not checked.
	d.Options = append(opts, auth.WithPolicy(auth.Policy{AllowAnyAudience: true}))
	return err
}

// detect takes the provider from the annotations of one cloud. The report says
// why the ServiceAccount has none.
func (d *DoctorFlags) detect(ctx context.Context) (report *doctor.Report, err error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: d.Annotations}}
	switch isNamed := d.ServiceAccount.Name != "" || d.Pod.Name != ""; {
	case d.id.Provider != "":
		return nil, nil //nolint:nilnil // nothing to detect
	case d.Client != nil && isNamed:
		if sa, report = identitydoctor.Detect(ctx, d.Config, credentials.CloudsOf); report != nil {
			return report, nil
		}
	case len(d.Annotations) == 0:
		return nil, nil //nolint:nilnil // Named explains it
	}
	return nil, d.id.Detect(sa)
}

// sources finds what the checks read. AWS is asked only on request, because the
// login of the person at the command line is not the one under examination and
// has more rights.
func (d *DoctorFlags) sources() (err error) {
	if d.trustLive {
		if d.Provider.GetName() != aws.ProviderName {
			return cli.Usagef("--trust-live is for aws; the answer of %s names what does not fit", d.Provider.GetName())
		}
		d.Trust = &trustaws.Reader{HTTPClient: d.id.HTTPClient}
	}
	if d.outside.IsSet() {
		d.IssuerClient, err = d.outside.Client()
	}
	if d.id.TokenFile != "" {
		d.Token = auth.NewFileTokenSource(d.id.TokenFile)
	}
	return err
}
