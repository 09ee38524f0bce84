import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import type { Change } from './answers.js';
import { asApiError } from './asking.js';
import { count, counted } from './format.js';
import { Failures, Problem } from './parts.js';
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
  useEffect(() => {
    dialog.current?.showModal();
    const signature = { by: 'console', reason: 'dry run', dryRun: true };
    change<Change>(wanted.operation, { ...wanted.body, ...signature }).then(setDryRun, (thrown: unknown) =>
      setError(asApiError(thrown)),
    );
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      setMade(
        await change<Change>(wanted.operation, { ...wanted.body, by: by.trim(), reason: reason.trim() }),
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
      onClose={() => close(made !== undefined)}
    >
      <form onSubmit={(event) => void submit(event)}>
        <h2 id="change-title">{wanted.title}</h2>
        <p>{wanted.consequence}</p>
        {error !== undefined && <Problem error={error} />}
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
          <Report of={made} countsEvents={wanted.countsEvents} />
        )}
        <div class="dialog-actions">
          <button type="button" onClick={() => dialog.current?.close()}>
            {made === undefined ? 'Cancel' : 'Close'}
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

function Report({ of, countsEvents }: { of: Change; countsEvents: boolean }): JSX.Element {
  return (
    <>
      <div class="notice ok" role="status">
        <p>
          <strong>Done.</strong> {countsEvents && `${count(of.count)} changed. `}
          {of.mayBeMore && 'There may be more: repeat the change. '}
          The change is recorded as <code>{of.changeId}</code>.
        </p>
      </div>
      <Failures of={of.failures} />
    </>
  );
}
