/** Calls whose texts of several words say what is wrong, beside `new` and `super`. */
const calls = new Set(['boundedJson', 'durableName', 'misuse', 'notNull', 'unwritten']);

/** Leaves the texts of errors as they are: what is tested of an error is its code. */
function shouldIgnore(path) {
  if (!isSentence(path)) return undefined;
  let around = path.parentPath;
  while (around?.isBinaryExpression()) around = around.parentPath;
  const callee = around?.node.callee;
  const isOfError = around?.isNewExpression() || callee?.type === 'Super' || calls.has(callee?.name);
  return isOfError ? 'The text of an error' : undefined;
}

function isSentence(path) {
  if (path.isStringLiteral()) return path.node.value.includes(' ');
  return path.isTemplateLiteral() && path.node.quasis.some(({ value }) => value.raw.includes(' '));
}

export const strykerPlugins = [{ kind: 'Ignore', name: 'error-texts', value: { shouldIgnore } }];
