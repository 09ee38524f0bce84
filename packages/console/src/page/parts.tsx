import type { ComponentChildren, JSX, TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';

import { to } from './address.js';
import type { Failure } from './answers.js';
import type { Query } from './use-answer.js';
import { fieldTime, instantOf, isDate, isUuid, localTime, shortId, valueText } from './format.js';
import { go, route } from './route.js';

type Children = { readonly children?: ComponentChildren };

/** A screen: its title, what it is about, and what can be done at once. */
export function Screen(
  props: Children & { title: string; about?: string | undefined; actions?: ComponentChildren },
): JSX.Element {
  return (
    <>
      <header class="screen-head">
        <div>
          <h1>{props.title}</h1>
          {props.about !== undefined && <p class="about">{props.about}</p>}
        </div>
        <div class="actions">{props.actions}</div>
      </header>
      {props.children}
    </>
  );
}

/** The local time; pointing at it shows the exact one. */
export function Time({ of }: { of: string | undefined }): JSX.Element {
  if (of === undefined) return <span class="muted">–</span>;
  return (
    <time dateTime={of} title={of}>
      {localTime(of)}
    </time>
  );
}

/** An id that leads to the explanation of what it names, or to the history of a model. */
export function IdLink({ id, screen = 'why' }: { id: string; screen?: 'why' | 'models' }): JSX.Element {
  return (
    <a class="id" href={to([screen, id])} title={id}>
      {shortId(id)}
    </a>
  );
}

export type Tone = 'ok' | 'warn' | 'bad' | 'quiet';

export function Badge({ tone = 'quiet', children }: Children & { tone?: Tone }): JSX.Element {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Shards, such as `0/0`. */
export function ShardNames({ of }: { of: readonly string[] }): JSX.Element {
  return <span class="shards">{of.join(', ')}</span>;
}

/** Says which databases are missing from what is shown. */
export function Failures({ of = [] }: { of?: readonly Failure[] | undefined }): JSX.Element | null {
  if (of.length === 0) return null;
  return (
    <div class="notice bad" role="status">
      <strong>This is only a part.</strong>
      <ul>
        {of.map(({ shards, code, detail }) => (
          <li key={`${shards.join()} ${code}`}>
            {shards.length === 0 ? 'The application' : `Shard ${shards.join(', ')}`} did not answer:{' '}
            <code>{code}</code>
            {detail !== undefined && `. ${detail}`}
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Problem({
  error,
  again,
}: {
  error: { message: string; code: string };
  again?: () => void;
}): JSX.Element {
  return (
    <div class="notice bad" role="alert">
      <p>
        {error.message} <code>{error.code}</code>
      </p>
      {again !== undefined && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Shows an answer, or that it is awaited, or why there is none. */
export function Answered<Answer extends object>(props: {
  asked: Query<Answer>;
  children: (answer: Answer) => ComponentChildren;
}): JSX.Element | null {
  const { answer, error, isLoading, refetch } = props.asked;
  if (error !== undefined) return <Problem error={error} again={refetch} />;
  if (answer !== undefined)
    return (
      <div aria-busy={isLoading} class={isLoading ? 'loading' : undefined}>
        <Failures of={'failures' in answer ? (answer.failures as readonly Failure[]) : undefined} />
        {props.children(answer)}
      </div>
    );
  return isLoading ? <Loading /> : null;
}

export function Loading(): JSX.Element {
  return (
    <p class="muted" role="status">
      Loading …
    </p>
  );
}

export function Empty({ children }: Children): JSX.Element {
  return <p class="empty">{children}</p>;
}

/** A column of a table. */
export interface Column<Item> {
  readonly title: string;
  /** Numbers are on the right, so that digits line up. */
  readonly isNumber?: boolean;
  readonly cell: (item: Item) => ComponentChildren;
}

/** A table; on a narrow window each row becomes a list of its cells. */
export function Table<Item>(props: {
  label: string;
  columns: readonly Column<Item>[];
  items: readonly Item[];
  keyOf: (item: Item, index: number) => string;
  /** What is shown below a row when it is opened. */
  more?: (item: Item) => ComponentChildren;
}): JSX.Element {
  const { columns, items, keyOf, more } = props;
  return (
    <div class="table-frame">
      <table aria-label={props.label}>
        <thead>
          <tr>
            {more !== undefined && (
              <th class="toggle">
                <span class="unseen">Details</span>
              </th>
            )}
            {columns.map(({ title, isNumber }) => (
              <th key={title} class={isNumber === true ? 'number' : undefined} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {items.map((item, index) => (
            <TableRow key={keyOf(item, index)} item={item} columns={columns} {...(more && { more })} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function TableRow<Item>(props: {
  item: Item;
  columns: readonly Column<Item>[];
  more?: (item: Item) => ComponentChildren;
}): JSX.Element {
  const { item, columns, more } = props;
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <tr>
        {more !== undefined && (
          <td class="toggle">
            <button
              type="button"
              class="plain"
              aria-expanded={isOpen}
              aria-label="Details"
              onClick={() => setOpen(!isOpen)}
            >
              {isOpen ? '▾' : '▸'}
            </button>
          </td>
        )}
        {columns.map(({ title, isNumber, cell }) => (
          <td key={title} class={isNumber === true ? 'number' : undefined} data-title={title}>
            {cell(item)}
          </td>
        ))}
      </tr>
      {isOpen && more !== undefined && (
        <tr class="more">
          <td colSpan={columns.length + 1}>{more(item)}</td>
        </tr>
      )}
    </>
  );
}

/** Leads to the next page; the browser's back leads to the one before. */
export function Pager({ next, noun = 'More' }: { next: string | undefined; noun?: string }): JSX.Element {
  const { path, query } = route.value;
  return (
    <nav class="pager" aria-label="Pages">
      {query['after'] !== undefined && <a href={to(path, { ...query, after: undefined })}>First page</a>}
      {next === undefined ? (
        <span class="muted">End of the list</span>
      ) : (
        <a href={to(path, { ...query, after: next })}>{noun}</a>
      )}
    </nav>
  );
}

/** A field of a form whose values become the filters of the address. */
export function Field(props: {
  name: string;
  label: string;
  isTime?: boolean;
  placeholder?: string;
  isRequired?: boolean;
}): JSX.Element {
  const { name, label, placeholder, isTime = false, isRequired = false } = props;
  const { [name]: value = '' } = route.value.query;
  const given = { name, required: isRequired, defaultValue: isTime ? fieldTime(value) : value };
  return (
    <label class="field">
      <span>{label}</span>
      {isTime ? (
        <input {...given} type="datetime-local" step="1" />
      ) : (
        <input {...given} placeholder={placeholder} autocomplete="off" spellcheck={false} />
      )}
    </label>
  );
}

/** A form of filters: sending it changes the address. */
export function Filters({ label, children }: Children & { label: string }): JSX.Element {
  const { path, query } = route.value;
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const form = event.currentTarget;
    const entries = [...new FormData(form)].flatMap(([name, value]): [string, string][] => {
      if (typeof value !== 'string' || value.trim() === '') return [];
      // In the address it is the same instant for a reader in another zone.
      const isTime = form.querySelector(`[name="${name}"]`)?.getAttribute('type') === 'datetime-local';
      return [[name, isTime ? instantOf(value) : value.trim()]];
    });
    go(to(path, Object.fromEntries(entries)));
  };
  // A new key fills the fields anew when the address changes.
  return (
    <form class="filters" aria-label={label} key={JSON.stringify(query)} onSubmit={submit}>
      {children}
      <div class="filter-actions">
        <button type="submit" class="primary">
          Search
        </button>
        {Object.keys(query).length > 0 && <a href={to(path)}>Clear</a>}
      </div>
    </form>
  );
}

/** A value of a payload or of a row. */
export function Value({ of }: { of: unknown }): JSX.Element {
  if (isDate(of)) return <Time of={of} />;
  if (isUuid(of))
    return (
      <a class="id" href={to(['why', of])}>
        {of}
      </a>
    );
  if (typeof of === 'object' && of !== null)
    return <pre class="json">{JSON.stringify(of, undefined, 2)}</pre>;
  return <span class={of === null || of === undefined ? 'muted' : 'value'}>{valueText(of)}</span>;
}

/** Names and values, one below the other. */
export function Facts({ of }: { of: Readonly<Record<string, unknown>> }): JSX.Element {
  return (
    <dl class="facts">
      {Object.entries(of)
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Value of={value} />
            </dd>
          </div>
        ))}
    </dl>
  );
}
