import { parser } from '@prometheus-io/lezer-promql';

/** The series that an expression selects: a metric, and the labels that must have a value. */
interface Selector {
  readonly metric: string;
  readonly labels: readonly (readonly [label: string, value: string])[];
}

/** What an expression of PromQL reads. */
export interface PrometheusExpression {
  readonly selectors: readonly Selector[];
  /** The labels by which it groups or matches. */
  readonly grouping: readonly string[];
  /** The labels that it makes itself. */
  readonly made: readonly string[];
}

/** @throws Error when the text is not PromQL */
export function parsePrometheusExpression(text: string): PrometheusExpression {
  // A variable of Grafana, which stands for a duration.
  const code = text.replaceAll('$__rate_interval', '5m');
  const selectors: { metric: string; labels: (readonly [string, string])[] }[] = [];
  const grouping: string[] = [];
  const textOf = ({ from, to }: { readonly from: number; readonly to: number }): string =>
    code.slice(from, to);
  parser.parse(code).iterate({
    enter: (node) => {
      if (node.type.isError) throw new Error(`not PromQL at ${node.from}: ${code}`);
      if (node.name === 'VectorSelector') selectors.push({ metric: '', labels: [] });
      const selector = selectors.at(-1);
      if (node.name === 'Identifier' && node.node.parent?.name === 'VectorSelector' && selector)
        selector.metric = textOf(node);
      if (node.name === 'UnquotedLabelMatcher' && selector) {
        const [, label = '', value = ''] = /^(\w+)\s*=\s*"(.*)"$/.exec(textOf(node)) ?? [];
        selector.labels.push([label, value]);
      }
      if (node.name === 'LabelName' && node.node.parent?.name === 'GroupingLabels')
        grouping.push(textOf(node));
    },
  });
  const made = [...code.matchAll(/label_replace\(\w+, "(\w+)"/g)].map(([, label = '']) => label);
  return { selectors, grouping, made };
}
