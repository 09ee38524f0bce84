import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import type { Failure, InvariantStep } from '../answers.js';
import { asApiError } from '../use-answer.js';
import { count, counted } from '../format.js';
import { Badge, Empty, Failures, IdLink, Problem, Screen, ShardNames, Table } from '../parts.js';
import { type ApiError, about, ask } from '../session.js';

/** How many violations are listed. */
const shownMax = 500;

interface Check {
  readonly state: 'running' | 'stopped' | 'complete';
  readonly stepCount: number;
  readonly examinedCount: number;
  readonly violationCount: number;
  readonly violations: InvariantStep['items'];
  readonly failures: readonly Failure[];
  readonly error?: ApiError;
}

const begun: Check = {
  state: 'running',
  stepCount: 0,
  examinedCount: 0,
  violationCount: 0,
  violations: [],
  failures: [],
};

/** What must hold in the application's data, checked step by step when somebody asks. */
export function Invariants(): JSX.Element {
  const invariants = about.value?.invariants ?? [];
  return (
    <Screen
      title="Invariants"
      about="What must hold in the application’s data. A check reads all of it, in short steps."
    >
      {invariants.length === 0 && <Empty>The application has declared none.</Empty>}
      {invariants.map(({ name, summary }) => (
        <Invariant key={name} name={name} summary={summary} />
      ))}
    </Screen>
  );
}

function Invariant({ name, summary }: { name: string; summary: string }): JSX.Element {
  const [check, setCheck] = useState<Check>();
  const stop = useRef<AbortController>(undefined);
  useEffect(() => () => stop.current?.abort(), []);
  const start = (): void => {
    const controller = new AbortController();
    stop.current = controller;
    void run(name, controller.signal, setCheck);
  };
  return (
    <section class="card" aria-label={name}>
      <header class="card-head">
        <h2>{name}</h2>
        {check !== undefined && <Outcome of={check} />}
        <div class="actions">
          {check?.state === 'running' ? (
            <button type="button" onClick={() => stop.current?.abort()}>
              Stop
            </button>
          ) : (
            <button type="button" onClick={start}>
              Check
            </button>
          )}
        </div>
      </header>
      <p>{summary}</p>
      {check !== undefined && (
        <>
          <p class="muted" role="status">
            {counted(check.examinedCount, 'model')} examined in {counted(check.stepCount, 'step')}
            {check.state === 'running' && ' …'}
          </p>
          {check.state === 'running' && <progress aria-label={`Check of ${name}`} />}
          <Failures of={check.failures} />
          {check.error !== undefined && <Problem error={check.error} />}
          {check.violations.length > 0 && (
            <Table
              label={`Violations of ${name}`}
              items={check.violations}
              keyOf={({ id }, index) => `${id} ${index}`}
              columns={[
                { title: 'What', cell: ({ id }) => <IdLink id={id} /> },
                { title: 'Shard', cell: ({ shards }) => <ShardNames of={shards} /> },
                { title: 'Finding', cell: ({ text }) => text },
              ]}
            />
          )}
          {check.violationCount > check.violations.length && (
            <p class="muted">The first {count(check.violations.length)} are listed.</p>
          )}
        </>
      )}
    </section>
  );
}

/** A part that did not answer proves nothing. */
function Outcome({ of: { state, violationCount, failures, error } }: { of: Check }): JSX.Element {
  if (violationCount > 0) return <Badge tone="bad">{counted(violationCount, 'violation')}</Badge>;
  if (state === 'running') return <Badge>checking</Badge>;
  if (error !== undefined || failures.length > 0) return <Badge tone="warn">not known</Badge>;
  return state === 'complete' ? <Badge tone="ok">holds</Badge> : <Badge>stopped</Badge>;
}

async function run(name: string, stop: AbortSignal, report: (check: Check) => void): Promise<void> {
  let check = begun;
  const tell = (changes: Partial<Check>): void => report((check = { ...check, ...changes }));
  tell({});
  try {
    let after: string | undefined;
    do {
      const step: InvariantStep = await ask<InvariantStep>(`invariants/${name}`, { after }, stop);
      after = step.next;
      tell({
        stepCount: check.stepCount + 1,
        examinedCount: check.examinedCount + step.examinedCount,
        violationCount: check.violationCount + step.items.length,
        violations: [...check.violations, ...step.items].slice(0, shownMax),
        failures: distinct([...check.failures, ...step.failures]),
      });
    } while (after !== undefined);
    tell({ state: 'complete' });
  } catch (error) {
    if (stop.aborted) tell({ state: 'stopped' });
    else tell({ state: 'stopped', error: asApiError(error) });
  }
}

function distinct(failures: readonly Failure[]): readonly Failure[] {
  return [
    ...new Map(failures.map((failure) => [`${failure.shards.join()} ${failure.code}`, failure])).values(),
  ];
}
