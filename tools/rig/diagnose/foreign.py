# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What translated programs say, in English; and what other linkers say, as ld does.

The messages are those of the translations that the C library, GCC and binutils ship
for the languages in which logs of builds are posted. Quotes are plain already.
"""

from __future__ import annotations

import regex as re
from ahocorasick_rs import AhoCorasick, MatchKind

_NO_FILE = "No such file or directory"
_NO_SPACE = "No space left on device"
_NO_MEMORY = "Cannot allocate memory"
_DENIED = "Permission denied"

MESSAGES: dict[str, str] = {
    # Chinese
    "致命错误：": "fatal error: ",
    "错误：": "error: ",
    "错误 ": "Error ",
    "警告：": "warning: ",
    "附注：": "note: ",
    "对'": "undefined reference to '",
    "没有那个文件或目录": _NO_FILE,
    "设备上没有空间": _NO_SPACE,
    "权限不够": _DENIED,
    "无法分配内存": _NO_MEMORY,
    "已杀死": "Killed",
    "段错误": "Segmentation fault",
    "总线错误": "Bus error",
    "设备或资源忙": "Device or resource busy",
    "文本文件忙": "Text file busy",
    "只读文件系统": "Read-only file system",
    "嚴重錯誤：": "fatal error: ",
    "錯誤：": "error: ",
    "沒有此一檔案或目錄": _NO_FILE,
    "裝置上已無多餘空間": _NO_SPACE,
    "無法配置記憶體": _NO_MEMORY,
    "已砍掉": "Killed",
    # German
    "schwerwiegender Fehler: ": "fatal error: ",
    "Fehler: ": "error: ",
    "Datei oder Verzeichnis nicht gefunden": _NO_FILE,
    "Auf dem Gerät ist kein Speicherplatz mehr verfügbar": _NO_SPACE,
    "Nicht genügend Hauptspeicher verfügbar": _NO_MEMORY,
    "Keine Berechtigung": _DENIED,
    "Speicherzugriffsfehler": "Segmentation fault",
    # French
    "erreur fatale : ": "fatal error: ",
    "erreur fatale: ": "fatal error: ",
    "erreur : ": "error: ",
    "erreur: ": "error: ",
    " : Aucun fichier ou dossier de ce ": f": {_NO_FILE}, ",
    "Aucun fichier ou dossier de ce ": f"{_NO_FILE}, ",
    "Aucun espace disponible sur le périphérique": _NO_SPACE,
    "Impossible d'allouer de la mémoire": _NO_MEMORY,
    "Permission non accordée": _DENIED,
    "Erreur de segmentation": "Segmentation fault",
    # Spanish
    "error fatal: ": "fatal error: ",
    "No existe el fichero o el directorio": _NO_FILE,
    "No existe el archivo o el directorio": _NO_FILE,
    "No queda espacio en el dispositivo": _NO_SPACE,
    "No se pudo asignar memoria": _NO_MEMORY,
    "Permiso denegado": _DENIED,
    "Terminado (killed)": "Killed",
    # Italian and Portuguese
    "errore fatale: ": "fatal error: ",
    "errore irreversibile: ": "fatal error: ",
    "errore: ": "error: ",
    "File o directory non esistente": _NO_FILE,
    "Spazio esaurito sul device": _NO_SPACE,
    "Impossibile allocare memoria": _NO_MEMORY,
    "Ucciso": "Killed",
    "erro fatal: ": "fatal error: ",
    "erro: ": "error: ",
    "Arquivo ou diretório inexistente": _NO_FILE,
    "Não há espaço disponível no dispositivo": _NO_SPACE,
    "Não foi possível alocar memória": _NO_MEMORY,
    # Russian
    "фатальная ошибка: ": "fatal error: ",
    "ошибка: ": "error: ",
    "Нет такого файла или каталога": _NO_FILE,
    "На устройстве не осталось свободного места": _NO_SPACE,
    "Невозможно выделить память": _NO_MEMORY,
    "Отказано в доступе": _DENIED,
    "Убито": "Killed",
    # Japanese and Korean
    "致命的エラー: ": "fatal error: ",
    "エラー: ": "error: ",
    "そのようなファイルやディレクトリはありません": _NO_FILE,
    "デバイスに空き領域がありません": _NO_SPACE,
    "メモリを確保できません": _NO_MEMORY,
    "許可がありません": _DENIED,
    "強制終了": "Killed",
    "치명적인 오류: ": "fatal error: ",
    "오류: ": "error: ",
    "그런 파일이나 디렉터리가 없습니다": _NO_FILE,
    "장치에 남은 공간이 없음": _NO_SPACE,
    "메모리를 할당할 수 없습니다": _NO_MEMORY,
    "죽었음": "Killed",
}
"""Translated messages that are the same wherever they stand."""

_WORDINGS = list(MESSAGES)
_FINDER = AhoCorasick(_WORDINGS, matchkind=MatchKind.LeftmostLongest)

# the name comes last here and first there
_CANNOT_FIND = re.compile(
    r"(?:找不到|ne peut trouver|impossible de trouver|no se puede encontrar"
    r"|невозможно найти|не уда[её]тся найти|impossibile trovare"
    r"|não foi possível localizar) (?P<after>-l[\w.+-]+)"
    r"|(?P<before>-l[\w.+-]+) ?"
    r"(?:kann nicht gefunden werden|が見つかりません|(?:을|를|\(을\)를)? 찾을 수 )"
)

# mold, and the linkers of macOS
_NOT_FOUND = re.compile(
    r"(?:(?:fatal|error): )?library not found(?::| for) (?:-l)?(?P<name>[\w.+-]+)"
)


def english(text: str) -> str:
    """Return a line with the translated messages in it in English.

    Parameters
    ----------
    text
        A line; quotes of other languages have been made plain.
    """
    found = _FINDER.find_matches_as_indexes(text)
    for which, start, end in reversed(found):
        text = f"{text[:start]}{MESSAGES[_WORDINGS[which]]}{text[end:]}"
    if "library not found" in text:
        text = _NOT_FOUND.sub(lambda one: f"cannot find -l{one['name']}", text)
    if "-l" in text:
        text = _CANNOT_FIND.sub(
            lambda one: f"cannot find {one['after'] or one['before']}", text
        )
    return text


SIGNALS = tuple(
    # as it stands in bytes that were lowered: only ASCII letters were
    "".join(c.lower() if c.isascii() else c for c in message)
    for message in MESSAGES
)
"""The messages as words that make a line worth keeping."""
