import { LegendDisplayMode, VizLegendOptionsBuilder } from '@grafana/grafana-foundation-sdk/common';
import {
  type Dashboard,
  DashboardBuilder,
  DatasourceVariableBuilder,
  RowBuilder,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder } from '@grafana/grafana-foundation-sdk/timeseries';

/** The metrics of one panel: their unit, and the expressions with their legends. */
interface Shown {
  readonly title: string;
  readonly unit: string;
  readonly by: readonly (readonly [expression: string, legend: string])[];
}

const consumer = 'messaging_consumer_group_name';
const ofConsumer = `{{${consumer}}} on {{framework_shard}}`;
/** All processes show the same. */
const perConsumer = (metric: string): string => `max by (${consumer}, framework_shard) (${metric})`;
const rate = (metric: string): string => `rate(${metric}[$__rate_interval])`;
const quantile = (share: number, metric: string, by: string): string =>
  `histogram_quantile(${share}, sum by (le, ${by}) (${rate(`${metric}_bucket`)}))`;

const rows: Readonly<Record<string, readonly Shown[]>> = {
  'Requests and actions': [
    {
      title: 'Requests by status',
      unit: 'reqps',
      by: [
        [
          `sum by (http_response_status_code) (${rate('http_server_request_duration_count')})`,
          '{{http_response_status_code}}',
        ],
      ],
    },
    {
      title: 'Actions by outcome',
      unit: 'ops',
      by: [
        [
          `sum by (framework_action, error_type) (${rate('framework_execute_duration_count')})`,
          '{{framework_action}} {{error_type}}',
        ],
      ],
    },
    {
      title: 'Latency of actions',
      unit: 's',
      by: [
        [quantile(0.5, 'framework_execute_duration', 'framework_action'), '{{framework_action}} p50'],
        [quantile(0.99, 'framework_execute_duration', 'framework_action'), '{{framework_action}} p99'],
      ],
    },
    {
      title: 'Stale commits and retries',
      unit: 'ops',
      by: [
        [
          `sum by (framework_shard) (${rate('framework_persist_duration_count{error_type="stale-record"}')})`,
          'stale on {{framework_shard}}',
        ],
        [
          `sum by (framework_action) (${rate('framework_execute_retries_total')})`,
          'retries of {{framework_action}}',
        ],
      ],
    },
    {
      title: 'Plans in a group',
      unit: 'short',
      by: [
        [quantile(0.5, 'framework_group_plans', 'framework_shard'), '{{framework_shard}} p50'],
        [quantile(0.99, 'framework_group_plans', 'framework_shard'), '{{framework_shard}} p99'],
      ],
    },
  ],
  Delivery: [
    { title: 'Lag', unit: 's', by: [[perConsumer('framework_delivery_lag'), ofConsumer]] },
    { title: 'Pending events', unit: 'short', by: [[perConsumer('framework_delivery_pending'), ofConsumer]] },
    {
      title: 'Blocked events and dead letters',
      unit: 'short',
      by: [
        [perConsumer('framework_delivery_blocked'), `blocked: ${ofConsumer}`],
        [perConsumer('framework_delivery_dead_letters'), `dead: ${ofConsumer}`],
      ],
    },
    {
      title: 'Calls of handlers by outcome',
      unit: 'ops',
      by: [
        [
          `sum by (${consumer}, error_type) (${rate('messaging_process_duration_count')})`,
          `{{${consumer}}} {{error_type}}`,
        ],
      ],
    },
    {
      title: 'Leases',
      unit: 'short',
      by: [
        [
          `max by (${consumer}, framework_shard, framework_lease_state) (framework_delivery_leases)`,
          `{{framework_lease_state}}: ${ofConsumer}`,
        ],
      ],
    },
  ],
  Relays: [
    {
      title: 'Published batches by outcome',
      unit: 'ops',
      by: [
        [
          `sum by (framework_relay, error_type) (${rate('messaging_client_operation_duration_count')})`,
          '{{framework_relay}} {{error_type}}',
        ],
      ],
    },
    {
      title: 'Latency of brokers',
      unit: 's',
      by: [
        [quantile(0.99, 'messaging_client_operation_duration', 'framework_relay'), '{{framework_relay}} p99'],
      ],
    },
  ],
  Databases: [
    {
      title: 'Databases that answer',
      unit: 'short',
      by: [['min by (framework_shard) (framework_database_up)', '{{framework_shard}}']],
    },
    {
      title: 'Connections in use',
      unit: 'percentunit',
      by: [
        [
          'db_client_connection_count{db_client_connection_state="used"} / ignoring (db_client_connection_state) db_client_connection_max',
          '{{db_client_connection_pool_name}} of {{instance}}',
        ],
      ],
    },
    {
      title: 'Callers that wait for a connection',
      unit: 'short',
      by: [['db_client_connection_pending_requests', '{{db_client_connection_pool_name}} of {{instance}}']],
    },
  ],
};

/** The dashboard of `docs/operations/grafana`, by the builders of Grafana, so that it has Grafana's format. */
export function grafanaDashboard(): Dashboard {
  const source = new DatasourceVariableBuilder('datasource').label('Data source').type('prometheus');
  const dashboard = new DashboardBuilder('Framework')
    .uid('framework')
    .tags(['framework'])
    .refresh('30s')
    .time({ from: 'now-1h', to: 'now' })
    .withVariable(source);
  for (const [title, panels] of Object.entries(rows)) {
    dashboard.withRow(new RowBuilder(title));
    for (const shown of panels) dashboard.withPanel(panelOf(shown));
  }
  return dashboard.build();
}

function panelOf({ title, unit, by }: Shown): PanelBuilder {
  const panel = new PanelBuilder()
    .title(title)
    .unit(unit)
    .min(0)
    .legend(new VizLegendOptionsBuilder().showLegend(true).displayMode(LegendDisplayMode.List))
    .datasource({ type: 'prometheus', uid: '${datasource}' });
  for (const [expression, legend] of by)
    panel.withTarget(new DataqueryBuilder().expr(expression).legendFormat(legend));
  return panel;
}
