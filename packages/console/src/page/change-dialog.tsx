import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import { to } from './address.js';
import { type Change, boundOf } from './answers.js';
import { asApiError } from './use-answer.js';
import { count, counted } from './format.js';
import { Facts, Failures, Problem } from './parts.js';
import { type ApiError, about, change } from './session.js';

const nameKey = 'operator-name';

/** A change that somebody has asked for. */
export interface WantedChange {
  /** The operation, such as `replay`. */
  readonly operation: string;
  /** Such as `Replay dead letters`. */
  readonly title: string;
  /** What happens, in a sentence or two. */
  readonly consequence: string;
  /** What the operation is sent besides name and reason. */
  readonly body: Readonly<Record<string, unknown>>;
  /** Whether it changes events, which a dry run counts. */
  readonly countsEvents: boolean;
}

/** The change whose dialog is open. It outlives the button: a replay may remove what the button belongs to. */
const opened = signal<{ readonly wanted: WantedChange; readonly onDone: () => void } | undefined>(undefined);

/** A button for a change; where nothing may be changed it is disabled and says why. */
export function ChangeButton(props: {
  wanted: WantedChange;
  label: string;
  isPrimary?: boolean;
  onDone: () => void;
}): JSX.Element {
  const { wanted, label, isPrimary = false, onDone } = props;
  const isReadOnly = about.value?.readOnly !== false;
  const reason = isReadOnly
    ? 'This listener changes nothing: framework.operator.read-only is true'
    : undefined;
  return (
    <button
      type="button"
      class={isPrimary ? 'primary' : undefined}
      disabled={isReadOnly}
      title={reason}
      onClick={() => (opened.value = { wanted, onDone })}
    >
      {label}
    </button>
  );
}

/** The dialog of the change that somebody has asked for, if there is one. */
export function PresentChange(): JSX.Element | null {
  if (opened.value === undefined) return null;
  const { wanted, onDone } = opened.value;
  return (
    <ChangeDialog
      wanted={wanted}
      close={(isDone) => {
        opened.value = undefined;
        if (isDone) onDone();
      }}
    />
  );
}

/** Counts first what would be changed, asks for name and reason, makes the change, and reports. */
function ChangeDialog({
  wanted,
  close,
}: {
  wanted: WantedChange;
  close: (isDone: boolean) => void;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [by, setBy] = useState(localStorage.getItem(nameKey) ?? '');
  const [reason, setReason] = useState('');
  const [dryRun, setDryRun] = useState<Change>();
  const [made, setMade] = useState<Change>();
  const [error, setError] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  /** Whether it was sent: then something may be changed, whatever the answer. */
  const [isSent, setSent] = useState(false);
  const isLeft = useRef(false);
  useEffect(() => {
    dialog.current?.showModal();
    const signature = { by: 'console', reason: 'dry run', dryRun: true };
    change<Change>(wanted.operation, { ...wanted.body, ...signature }).then(setDryRun, (thrown: unknown) =>
      setError(asApiError(thrown)),
    );
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setSent(true);
    setError(undefined);
    try {
      const signature = { by: by.trim(), reason: reason.trim() };
      setMade(
        await change<Change>(wanted.operation, {
          ...wanted.body,
          ...boundOf(wanted.operation, dryRun),
          ...signature,
        }),
      );
      localStorage.setItem(nameKey, by.trim());
    } catch (thrown) {
      setError(asApiError(thrown));
    }
    setBusy(false);
  };
  const isPossible = dryRun !== undefined && (!wanted.countsEvents || dryRun.count > 0);
  const verb = wanted.title.split(' ', 1)[0] ?? '';
  return (
    <dialog
      ref={dialog}
      class="change"
      aria-labelledby="change-title"
      onClose={() => {
        // The Escape key must not hide the outcome.
        if (isBusy && !isLeft.current) dialog.current?.showModal();
        else close(isSent);
      }}
    >
      <form onSubmit={(event) => void submit(event)}>
        <h2 id="change-title">{wanted.title}</h2>
        <p>{wanted.consequence}</p>
        {wanted.countsEvents && <Facts of={filterOf(wanted)} />}
        {error !== undefined && <Problem error={error} />}
        {error !== undefined && isSent && isUnknown(error) && (
          <p>
            It is not known whether the change was made. The{' '}
            <a href={to(['audit'])} onClick={() => dialog.current?.close()}>
              audit
            </a>{' '}
            says what was begun and how it ended.
          </p>
        )}
        {made === undefined ? (
          <>
            <DryRun of={dryRun} countsEvents={wanted.countsEvents} />
            <label class="field">
              <span>Your name</span>
              <input
                required
                maxLength={255}
                value={by}
                onInput={(event) => setBy(event.currentTarget.value)}
              />
            </label>
            <label class="field">
              <span>Reason</span>
              <input
                required
                maxLength={1_000}
                value={reason}
                onInput={(event) => setReason(event.currentTarget.value)}
              />
            </label>
            <p class="muted">Both are recorded.</p>
          </>
        ) : (
          <Report
            of={made}
            expected={dryRun}
            countsEvents={wanted.countsEvents}
            isUnbounded={boundOf(wanted.operation, dryRun).limit === undefined}
          />
        )}
        <div class="dialog-actions">
          <button
            type="button"
            onClick={() => {
              isLeft.current = true;
              dialog.current?.close();
            }}
          >
            {isBusy ? 'Do not wait' : isSent ? 'Close' : 'Cancel'}
          </button>
          {made === undefined && (
            <button type="submit" class="primary" disabled={!isPossible || isBusy}>
              {wanted.countsEvents && isPossible
                ? `${verb} ${counted(dryRun.count, 'event', dryRun.mayBeMore)}`
                : verb}
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

function DryRun({ of, countsEvents }: { of: Change | undefined; countsEvents: boolean }): JSX.Element {
  if (of === undefined) return <p role="status">Counting what would be changed …</p>;
  return (
    <>
      <Failures of={of.failures} />
      <ul class="dry-run" aria-label="Dry run">
        {of.items.map((item) => (
          <li key={item.shards.join()}>
            Shard {item.shards.join(', ')}:{' '}
            <strong>
              {countsEvents ? counted(item.count, 'event', item.mayBeMore) : 'would be changed'}
            </strong>
          </li>
        ))}
        {of.items.length === 0 && <li>Nothing would be changed.</li>}
      </ul>
    </>
  );
}

/** Says what was changed, and only that. */
function Report(props: {
  of: Change;
  expected: Change | undefined;
  countsEvents: boolean;
  isUnbounded: boolean;
}): JSX.Element {
  const { of, expected, countsEvents, isUnbounded } = props;
  const isDone = of.failures.length === 0;
  const isNothing = of.items.length === 0;
  return (
    <>
      <div class={isDone ? 'notice ok' : 'notice bad'} role="status">
        <p>
          <strong>{isDone ? 'Done.' : isNothing ? 'It failed.' : 'Done in part.'}</strong>{' '}
          {countsEvents && `${count(of.count)} changed. `}
          {countsEvents &&
            expected !== undefined &&
            expected.count !== of.count &&
            `The dry run had counted ${count(expected.count, expected.mayBeMore)}. `}
          {of.mayBeMore && isUnbounded && 'There may be more: repeat the change. '}
          {isNothing ? 'No database says that it was changed. If it was begun, it' : 'The change'} is recorded
          as <code>{of.changeId}</code>.
        </p>
      </div>
      <Failures of={of.failures} />
    </>
  );
}

/** Which events are changed, as the filter says. */
function filterOf({ body }: WantedChange): Readonly<Record<string, unknown>> {
  const { errorLine, ...filter } = body['filter'] as Readonly<Record<string, unknown>>;
  return { ...filter, errorLine: errorLine === '' ? 'none was recorded' : errorLine };
}

/** Whether a change may be made although its answer is an error. */
function isUnknown({ status }: ApiError): boolean {
  return status === 0 || status >= 500;
}
