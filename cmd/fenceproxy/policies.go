package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// policiesFlag is the name of the flag with the rules.
const policiesFlag = "policies"

// policyFlags say what holds for the sessions of which role and database.
type policyFlags struct {
	untagged choice
	fencing  choice
	rules    policyRules
}

func newPolicyFlags() policyFlags {
	var standard proxy.Policy
	return policyFlags{
		untagged: choice{standard.UntaggedWrites.String(), []string{
			proxy.AllowUntagged.String(), proxy.ObserveUntagged.String(), proxy.RejectUntagged.String()}},
		fencing: choice{standard.Fencing.String(), []string{
			proxy.FenceAccepted.String(), proxy.FenceIssued.String(), proxy.FenceLive.String()}},
	}
}

func (p *policyFlags) add(flags *pflag.FlagSet) {
	flags.Var(&p.untagged, "untagged-writes", "what becomes of writes without a tag, where no policy says otherwise: observe logs and counts them, reject refuses them")
	flags.Var(&p.fencing, "fencing", "what makes a token stale, where no policy says otherwise: a higher one that was accepted, one that etcd has issued, or a lock that isn't live")
	flags.Var(&p.rules, policiesFlag, "a YAML list of rules for databases and roles, of which the first that fits a session counts, such as '[{role: migrator, untagged_writes: allow}]'")
}

// policies are the rules, with the flags' policy for what they leave open.
func (p *policyFlags) policies() (proxy.Policies, error) {
	standard, err := policyRule{untagged: p.untagged.value, fencing: p.fencing.value}.policy(proxy.Policy{})
	if err != nil {
		return proxy.Policies{}, err // not reached: the flags know their words
	}
	all := proxy.Policies{Default: standard}
	for _, r := range p.rules.rules {
		policy, err := r.policy(standard)
		if err != nil {
			return proxy.Policies{}, err // not reached: SetNode has looked
		}
		all.Rules = append(all.Rules, proxy.Rule{Database: r.database, Role: r.role, Policy: policy})
	}
	return all, nil
}

// A policyRule is a rule as it is written; "" is what it leaves open.
type policyRule struct{ database, role, untagged, fencing string }

// field returns where the value of a key goes, nil if there is no such key.
func (r *policyRule) field(key string) *string {
	switch key {
	case "database":
		return &r.database
	case "role":
		return &r.role
	case "untagged_writes":
		return &r.untagged
	case "fencing":
		return &r.fencing
	}
	return nil
}

// policy is what the rule says, with the standard for what it leaves open.
func (r policyRule) policy(standard proxy.Policy) (policy proxy.Policy, err error) {
	policy = standard
	if r.untagged != "" {
		if policy.UntaggedWrites, err = proxy.ParseUntaggedWrites(r.untagged); err != nil {
			return policy, fmt.Errorf("untagged_writes: %w", err)
		}
	}
	if r.fencing != "" {
		if policy.Fencing, err = proxy.ParseFencing(r.fencing); err != nil {
			return policy, fmt.Errorf("fencing: %w", err)
		}
	}
	return policy, nil
}

// check refuses a rule that can't be meant.
func (r policyRule) check() error {
	if _, err := r.policy(proxy.Policy{}); err != nil {
		return err
	}
	for _, p := range [...]struct{ key, pattern string }{{"database", r.database}, {"role", r.role}} {
		if err := proxy.CheckPattern(p.pattern); err != nil {
			return fmt.Errorf("%s: %w", p.key, err)
		}
	}
	switch {
	case r.untagged == "" && r.fencing == "":
		return errors.New("it sets neither untagged_writes nor fencing")
	case r.database == "" && r.role == "":
		return errors.New("it names neither a database nor a role; --untagged-writes and --fencing say what holds for all")
	}
	return nil
}

// policyRules are the rules of --policies: YAML on the command line and in the
// environment, as in the file.
type policyRules struct {
	rules []policyRule
	text  string
}

func (p *policyRules) Set(text string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return errors.New("a list of rules is expected, such as [{role: migrator, untagged_writes: allow}]")
	}
	return p.SetNode(doc.Content[0])
}

// SetNode is Set from a file; errors name the rule.
func (p *policyRules) SetNode(list *yaml.Node) error {
	if list.Kind != yaml.SequenceNode {
		return errors.New("a list of rules is expected, such as [{role: migrator, untagged_writes: allow}]")
	}
	var rules []policyRule
	for i, node := range list.Content {
		r, err := readRule(node)
		if err == nil {
			err = r.check()
		}
		same := func(before policyRule) bool { return before.database == r.database && before.role == r.role }
		if before := slices.IndexFunc(rules, same); err == nil && before >= 0 {
			err = fmt.Errorf("it is never reached: rule %d is for the same sessions", before+1)
		}
		if err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
		rules = append(rules, r)
	}
	list.Style = yaml.FlowStyle // in one line
	text, err := yaml.Marshal(list)
	if err != nil {
		return fmt.Errorf("write the rules: %w", err)
	}
	p.rules, p.text = rules, strings.Join(strings.Fields(string(text)), " ")
	return nil
}

// readRule reads one rule, whose keys and values are known words only.
func readRule(node *yaml.Node) (policyRule, error) {
	var r policyRule
	if node.Kind != yaml.MappingNode {
		return r, errors.New("a mapping is expected, such as {role: migrator, untagged_writes: allow}")
	}
	known := []string{"database", "role", "untagged_writes", "fencing"}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := r.field(key.Value)
		switch {
		case field == nil:
			return r, fmt.Errorf("%s: no such setting%s", key.Value, didYouMean(key.Value, known, asItIs))
		case *field != "":
			return r, fmt.Errorf("%s: stands there twice", key.Value)
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null" || value.Value == "":
			return r, fmt.Errorf("%s: a value is expected", key.Value)
		}
		*field = value.Value
	}
	return r, nil
}

func (p *policyRules) String() string { return p.text }
func (*policyRules) Type() string     { return "list" }
